//! The file of tokens.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use steadfast_core::time::Timestamp;
use steadfast_server::tokens::{Scope, TokenError, Tokens};

use crate::support::kept_in;

const NOW: Timestamp = Timestamp(1000);

#[test]
fn a_token_is_known_by_its_hash_only_and_its_file_is_private() {
    let folder = tempfile::tempdir().expect("a folder");
    let tokens = Tokens::open(kept_in(folder.path())).expect("empty");
    assert_eq!(tokens.usable(NOW).expect("readable"), 0);
    let made = tokens.create(Scope::Submit, Some("ci"), None, NOW).expect("made");
    let secret = made.text.strip_prefix(&format!("sf_{}_", made.id)).expect("the id is in it");
    assert_eq!(secret.len(), 64);
    assert!(!format!("{made:?}").contains(secret));
    for entry in fs::read_dir(folder.path()).expect("readable") {
        let path = entry.expect("readable").path();
        let text = String::from_utf8(fs::read(&path).expect("readable")).expect("text");
        assert!(!text.contains(secret), "{}", path.display());
        let mode = fs::metadata(&path).expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{}", path.display());
    }
    let granted = tokens.check(&made.text, NOW).expect("good");
    assert_eq!((granted.id, granted.name.as_deref()), (made.id.clone(), Some("ci")));
    assert_eq!(granted.scope, Scope::Submit);
    let other = tokens.create(Scope::Read, None, None, NOW).expect("made");
    let crossed = format!("sf_{}_{secret}", other.id);
    let (cut, longer) = (&made.text[..made.text.len() - 1], format!("{}0", made.text));
    for wrong in [&crossed, cut, &longer, "", "sf_", "sf__", secret, &made.id] {
        assert!(tokens.check(wrong, NOW).is_none(), "{wrong}");
    }
}

#[test]
fn a_server_sees_what_another_process_did_to_the_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = Tokens::open(kept_in(folder.path())).expect("empty");
    let command = Tokens::open(kept_in(folder.path())).expect("empty");
    let made = command.create(Scope::Read, None, Some(Timestamp(2000)), NOW).expect("made");
    assert!(server.check(&made.text, NOW).is_some());
    assert!(server.check(&made.text, Timestamp(2000)).is_none());
    assert_eq!(server.usable(Timestamp(1999)).expect("readable"), 1);
    assert_eq!(server.usable(Timestamp(2000)).expect("readable"), 0);
    command.revoke(&made.id).expect("there");
    assert!(server.check(&made.text, NOW).is_none());
    assert!(matches!(command.revoke(&made.id), Err(TokenError::Unknown(_))));
}

#[test]
fn while_the_file_is_broken_no_token_is_accepted() {
    let folder = tempfile::tempdir().expect("a folder");
    let tokens = Tokens::open(kept_in(folder.path())).expect("empty");
    let made = tokens.create(Scope::Admin, None, None, NOW).expect("made");
    let path = folder.path().join("tokens.json");
    let good = fs::read(&path).expect("there");
    assert!(tokens.check(&made.text, NOW).is_some());
    fs::write(&path, b"{").expect("written");
    assert!(tokens.check(&made.text, NOW).is_none());
    assert!(tokens.create(Scope::Admin, None, None, NOW).is_err(), "would lose what was there");
    fs::write(&path, &good).expect("written");
    assert!(tokens.check(&made.text, NOW).is_some());
    fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).expect("ours");
    assert!(tokens.check(&made.text, NOW).is_none());
    let why = Tokens::open(kept_in(folder.path())).expect_err("refused").to_string();
    assert!(why.contains("others can write to it"), "{why}");
    fs::remove_file(&path).expect("there");
    assert!(tokens.check(&made.text, NOW).is_none());
}

#[test]
fn tokens_made_at_once_are_all_kept() {
    let folder = tempfile::tempdir().expect("a folder");
    std::thread::scope(|threads| {
        for _ in 0..8 {
            threads.spawn(|| {
                let tokens = Tokens::open(kept_in(folder.path())).expect("readable");
                for _ in 0..5 {
                    tokens.create(Scope::Worker, None, None, NOW).expect("made");
                }
            });
        }
    });
    let tokens = Tokens::open(kept_in(folder.path())).expect("readable");
    assert_eq!(tokens.list().expect("readable").len(), 40);
}

#[test]
fn a_name_that_would_move_the_cursor_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let tokens = Tokens::open(kept_in(folder.path())).expect("empty");
    let long = "x".repeat(101);
    for name in ["", "a\nb", "\u{1b}[2J", &long] {
        assert!(matches!(tokens.create(Scope::Read, Some(name), None, NOW), Err(TokenError::Name)));
    }
}
