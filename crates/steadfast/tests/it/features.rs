//! Without features it is a client and a worker, and brings no server along.

use std::process::Command;

#[test]
fn a_client_brings_no_database_no_server_and_no_exporter() {
    let tree = |features: &[&str]| {
        let told = Command::new(env!("CARGO"))
            .args(["tree", "-p", "steadfast", "-e", "normal", "--prefix", "none", "--offline"])
            .args(features)
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .output()
            .expect("cargo");
        assert!(told.status.success(), "{}", String::from_utf8_lossy(&told.stderr));
        String::from_utf8(told.stdout).expect("UTF-8")
    };
    let unwanted = |tree: &str| -> Vec<String> {
        let names = [
            "rusqlite",
            "opentelemetry",
            "steadfast-server",
            "steadfast-store",
            "steadfast-engine",
        ];
        names.iter().filter(|name| tree.contains(*name)).map(ToString::to_string).collect()
    };
    for features in [&[][..], &["--no-default-features"]] {
        let told = tree(features);
        assert!(told.contains("steadfast-worker"), "{told}");
        assert!(unwanted(&told).is_empty(), "{:?} with {features:?}", unwanted(&told));
    }
    // So that the names are right.
    assert_eq!(unwanted(&tree(&["--features", "embedded"])).len(), 5);
}
