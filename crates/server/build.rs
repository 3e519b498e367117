//! Lists the dashboard's built files, so that they are part of the program. They are committed, compressed: building the
//! program needs no Node.

use std::path::{Path, PathBuf};
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let root = Path::new(&env::var("CARGO_MANIFEST_DIR").expect("cargo says where"))
        .join("../../web/dist")
        .canonicalize()?;
    println!("cargo::rerun-if-changed={}", root.display());
    let mut found = vec![];
    collect(&root, &mut found)?;
    found.sort();
    let mut table = String::from("&[\n");
    for path in found {
        let name = path.strip_prefix(&root).expect("it was found there");
        let name = name.to_str().expect("names are text").trim_end_matches(".br");
        let path = path.to_str().expect("paths are text");
        table.push_str(&format!("    ({name:?}, include_bytes!({path:?}) as &[u8]),\n"));
    }
    table.push_str("]\n");
    let out = Path::new(&env::var("OUT_DIR").expect("cargo says where")).join("dashboard.rs");
    fs::write(out, table)
}

/// Only what is compressed is a file of the dashboard: the manifest is not.
fn collect(folder: &Path, found: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, found)?;
        } else if path.extension().is_some_and(|ending| ending == "br") {
            found.push(path);
        }
    }
    Ok(())
}
