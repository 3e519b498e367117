//! Where a command goes: to a server or to a data folder.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Output};

use serde_json::Value;
use steadfast_jobfile::Operator;

use crate::helpers::Place;
use crate::server::Server;
use crate::{OK, TestBed, exit, is_id};

#[test]
fn a_data_folder_answers_if_it_is_named_and_a_server_if_that_is() {
    let bed = TestBed::new("either");
    let there = bed.ended(OK);
    let ran = bed.place.run("name: here\nsteps: { a: { run: 'true' } }");
    let data = bed.place.path("data");
    let data = data.to_str().unwrap();
    let last = |command: &mut Command| {
        let output = command.output().unwrap();
        serde_json::from_slice::<Value>(&output.stdout).unwrap()["id"].clone()
    };
    let args = ["status", "last", "-o", "json"];
    // A server in the environment wins over a folder there, and a flag over both.
    assert_eq!(last(&mut bed.command(&args)), there.as_str());
    assert_eq!(last(bed.command(&args).env_remove("STEADFAST_SERVER")), ran.id());
    let with_data = [&args[..], &["--data", data]].concat();
    assert_eq!(last(&mut bed.command(&with_data)), ran.id());
    let url = bed.server.url();
    let with_server = [&args[..], &["--server", &url]].concat();
    let mut command = bed.command(&with_server);
    assert_eq!(last(command.env("STEADFAST_SERVER", "http://127.0.0.1:1")), there.as_str());
    let both = [&with_data[..], &["--server", &url]].concat();
    let why = bed.refuses(&both);
    assert!(why.contains("--data") && why.contains("--server"), "{why}");
}

#[test]
fn the_default_address_is_for_whoever_listens_there() {
    const DEFAULT: &str = "127.0.0.1:7117";
    let place = Place::new("client-default");
    let call = |args: &[&str]| {
        let mut command = place.command(args);
        command.env("HOME", place.path("")).env_remove("XDG_CONFIG_HOME");
        command.env_remove("XDG_DATA_HOME").env_remove("STEADFAST_DATA");
        command.env_remove("STEADFAST_SERVER").output().expect("the program starts")
    };
    let local = "no jobs yet; start one with `steadfast run job.yaml`\n";
    let said = |output: &Output| String::from_utf8_lossy(&output.stdout).into_owned();
    if std::net::TcpListener::bind(DEFAULT).is_err() {
        // Somebody on this machine is there, and is asked.
        assert_ne!(said(&call(&["list"])), local);
        return;
    }
    assert_eq!(said(&call(&["list"])), local);
    let file = place.write("job.yaml", OK);
    let output = call(&["submit", file.to_str().unwrap()]);
    let why = String::from_utf8_lossy(&output.stderr);
    assert_eq!(exit(&output), Some(5), "{why}");
    assert!(why.contains(&format!("http://{DEFAULT}")) && why.contains("steadfast up"), "{why}");
    let server = Server::with(Operator::default(), DEFAULT);
    let output = call(&["list"]);
    assert_eq!(said(&output), "no jobs yet; hand one over with `steadfast submit job.yaml`\n");
    assert!(is_id(said(&call(&["submit", file.to_str().unwrap()])).trim_end()));
    drop(server);
}

#[test]
fn a_profile_names_a_server_and_its_token() {
    let bed = TestBed::new("profile");
    let id = bed.ended(OK);
    let config = bed.place.path(".config/steadfast");
    fs::create_dir_all(&config).unwrap();
    let file = config.join("config.toml");
    let url = bed.server.url();
    let text = format!("default = 'lab'\n[profiles.lab]\nserver = '{url}'\ntoken = 's3cret'\n");
    fs::write(&file, &text).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    let call = |args: &[&str]| {
        let mut command = bed.command(args);
        command.env_remove("STEADFAST_SERVER").env_remove("STEADFAST_DATA");
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!said.contains("s3cret"), "{said}");
        (exit(&output), String::from_utf8(output.stdout).unwrap(), said)
    };
    let (status, listed, said) = call(&["list"]);
    assert_eq!(status, Some(0), "{said}");
    assert!(listed.contains(&id), "{listed}");
    assert!(said.contains("warning") && said.contains("chmod 600"), "{said}");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(call(&["status", "last", "--profile", "lab"]).2, "");
    let (status, _, said) = call(&["list", "--profile", "prod"]);
    assert_eq!(status, Some(2));
    assert!(said.contains("`prod`") && said.contains("it has lab"), "{said}");
    fs::write(&file, text.replace("token =", "tokne =")).unwrap();
    let (status, _, said) = call(&["list"]);
    assert_eq!(status, Some(2));
    assert!(said.contains("config.toml line 4: unknown field `tokne`"), "{said}");
}
