//! The code in `src/generated` is what the `.proto` files say. `UPDATE_PROTO=1` writes it anew.

use std::fs;
use std::path::Path;

use prost::Message as _;
use prost_types::FileDescriptorSet;
use steadfast_api::proto;

const FILES: [&str; 2] = ["steadfast/v1/jobs.proto", "steadfast/v1/workers.proto"];

#[test]
fn generated_code_is_that_of_the_proto_files() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let described = protox::Compiler::new([here.join("proto")])
        .and_then(|mut compiler| {
            compiler.include_imports(true).include_source_info(true).open_files(FILES)?;
            Ok(compiler.file_descriptor_set())
        })
        .expect("the proto files are valid");
    let made = tempfile::tempdir().expect("a folder");
    tonic_prost_build::configure()
        .out_dir(made.path())
        .bytes(".steadfast.v1.LogChunk.bytes")
        // Five times as large as the other kind, and seldom.
        .boxed(".steadfast.v1.NewJob.kind.launch")
        // What is sent has one order.
        .btree_map(".")
        // What they hold is for the server and the worker alone: see `src/proto.rs`.
        .skip_debug([".steadfast.v1.Hello", ".steadfast.v1.Welcome"])
        .compile_fds(described.clone())
        .expect("code is made of them");
    let code = fs::read(made.path().join("steadfast.v1.rs")).expect("it is there");
    let bytes = without_comments(described).encode_to_vec();
    for (name, made) in [("steadfast.v1.rs", code), ("descriptor.bin", bytes)] {
        let path = here.join("src/generated").join(name);
        if std::env::var_os("UPDATE_PROTO").is_some() {
            fs::write(&path, &made).expect("written");
        }
        let kept = fs::read(&path).unwrap_or_default();
        assert!(kept == made, "{name} is not what the proto files say: UPDATE_PROTO=1 writes it");
    }
}

/// What reflection tells.
fn without_comments(mut described: FileDescriptorSet) -> FileDescriptorSet {
    for file in &mut described.file {
        file.source_code_info = None;
    }
    described
}

#[test]
fn the_same_assignment_is_the_same_bytes() {
    let env =
        |names: &[&str]| names.iter().map(|name| ((*name).to_owned(), String::new())).collect();
    let with = |names| proto::Assignment { env: env(names), ..proto::Assignment::default() };
    let names = ["a", "b", "c", "d", "e", "f", "g", "h"];
    let mut reversed = names;
    reversed.reverse();
    assert_eq!(with(&names).encode_to_vec(), with(&reversed).encode_to_vec());
}
