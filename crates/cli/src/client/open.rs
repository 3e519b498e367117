//! The dashboard, in a browser.

use std::process::{Command, Stdio};

use super::api::Client;
use super::find;
use crate::Exit;
use crate::args::OpenArgs;
use crate::error::CliError;
use crate::style::inert;

/// Prints the address, whatever becomes of the browser.
pub(super) async fn open(client: &Client, args: &OpenArgs) -> Result<Exit, CliError> {
    let mut address = client.address();
    if let Some(job) = &args.job {
        let id = find::find(client, job).await?;
        // Also of an id that is whole: a page of nothing helps nobody.
        client.status(&id).await?;
        address = format!("{address}/jobs/{id}");
    }
    anstream::println!("{}", inert(&address));
    if args.print {
        return Ok(Exit::Ok);
    }
    let named = std::env::var("BROWSER").ok();
    if !browsers(named.as_deref(), &address).into_iter().any(|command| is_started(&command)) {
        anstream::eprintln!("no browser could be started: open the address, or set BROWSER");
    }
    Ok(Exit::Ok)
}

/// Commands to try in turn. `$BROWSER` has several with colons between them; the address goes where `%s` is, or to the end.
fn browsers(named: Option<&str>, address: &str) -> Vec<Vec<String>> {
    let system = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };
    let named = named.filter(|named| !named.trim().is_empty()).unwrap_or(system);
    let words = |command: &str| -> Vec<String> {
        let mut words: Vec<String> =
            command.split_whitespace().map(|word| word.replace("%s", address)).collect();
        if !command.contains("%s") {
            words.push(address.to_owned());
        }
        words
    };
    named.split(':').filter(|command| !command.trim().is_empty()).map(words).collect()
}

/// It goes on when this program has ended, and says nothing here.
fn is_started(command: &[String]) -> bool {
    let Some((program, words)) = command.split_first() else { return false };
    let null = Stdio::null;
    Command::new(program).args(words).stdin(null()).stdout(null()).stderr(null()).spawn().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_browser_is_the_users_and_gets_the_address_once() {
        let at = "http://127.0.0.1:7117";
        assert_eq!(browsers(Some("firefox"), at), [vec!["firefox", at]]);
        assert_eq!(
            browsers(Some("chromium --app=%s:lynx"), at),
            [vec!["chromium".to_owned(), format!("--app={at}")], vec!["lynx".into(), at.into()]]
        );
        for none in [None, Some(""), Some(" ")] {
            assert_eq!(browsers(none, at).len(), 1);
        }
    }
}
