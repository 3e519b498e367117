//! What a person sees: the program on a real pseudo-terminal, read by a terminal emulator.

mod common;

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::num::NonZero;
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use common::{Place, wait_for};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

/// Lines that scroll away are kept, so that junk is found there too.
const SCROLLBACK: usize = 10_000;

/// A terminal with a program in it.
struct Terminal {
    keyboard: File,
    program: Child,
    shown: Arc<Mutex<vt100::Parser>>,
    /// All bytes that came.
    bytes: Arc<Mutex<Vec<u8>>>,
}

impl Terminal {
    fn start(command: &Command, rows: u16, columns: u16, term: &str) -> Self {
        let here = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)
            .expect("a terminal");
        grantpt(&here).expect("granted");
        unlockpt(&here).expect("unlocked");
        resize(&here, rows, columns);
        let name = ptsname(&here, vec![]).expect("a name").into_string().expect("plain");
        let there = File::options().read(true).write(true).open(name).expect("opens");
        // The terminal controls its session: Ctrl-C reaches who reads from it.
        let mut inside = Command::new("setsid");
        inside.args(["--ctty", "--wait"]).arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => inside.env(name, value),
                None => inside.env_remove(name),
            };
        }
        inside.env("TERM", term).env_remove("NO_COLOR");
        let pipe = || Stdio::from(there.try_clone().expect("a descriptor"));
        let program = inside.stdin(pipe()).stdout(pipe()).stderr(pipe()).spawn().expect("starts");
        let keyboard = File::from(here);
        let shown = Arc::new(Mutex::new(vt100::Parser::new(some(rows), some(columns), SCROLLBACK)));
        let bytes = Arc::new(Mutex::new(vec![]));
        let mut screen = keyboard.try_clone().expect("a descriptor");
        let (parser, all) = (shown.clone(), bytes.clone());
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            // An error: the last program has left the terminal.
            while let Ok(n @ 1..) = screen.read(&mut buffer) {
                all.lock().expect("whole").extend(&buffer[..n]);
                parser.lock().expect("whole").process(&buffer[..n]);
            }
        });
        Self { keyboard, program, shown, bytes }
    }

    fn resize(&self, rows: u16, columns: u16) {
        // What comes after is for the new size: the program must not draw in between.
        let mut shown = self.shown.lock().expect("whole");
        tcsetwinsize(&self.keyboard, winsize(rows, columns)).expect("resized");
        shown.screen_mut().set_size(some(rows), some(columns));
    }

    fn screen(&self) -> String {
        self.shown.lock().expect("whole").screen().contents()
    }

    #[track_caller]
    fn shows(&self, words: &str) {
        let mut last = String::new();
        wait_for(&format!("`{words}` on the screen"), || {
            let screen = self.screen();
            let found = screen.contains(words);
            if screen != last && std::env::var_os("SHOW_SCREENS").is_some() {
                println!("{screen}\n----");
                last = screen;
            }
            found.then_some(())
        });
    }

    fn press_ctrl_c(&mut self) {
        self.keyboard.write_all(b"\x03").expect("pressed");
    }

    /// All that can be read on the terminal after the program has ended, also by scrolling back.
    fn end(mut self) -> (Option<i32>, String) {
        let code = self.program.wait().expect("ends").code();
        // The reader may still have something to read.
        let mut read = 0;
        wait_for("the last words", || {
            let before = std::mem::replace(&mut read, self.bytes.lock().expect("whole").len());
            (before == read && before > 0).then_some(())
        });
        let mut parser = self.shown.lock().expect("whole");
        let (rows, columns) = parser.screen().size();
        parser.screen_mut().set_scrollback(SCROLLBACK);
        let above = parser.screen().scrollback();
        let mut lines: Vec<String> = vec![];
        for at in (0..=above).rev() {
            parser.screen_mut().set_scrollback(at);
            let screen: Vec<String> = parser.screen().rows(0, columns.get()).collect();
            let take = if at == 0 { usize::from(rows.get()) } else { 1 };
            lines.extend(screen.into_iter().take(take));
        }
        (code, lines.join("\n"))
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // With its terminal closed, the program ends what it runs.
        let _ = self.program.kill();
    }
}

fn some(n: u16) -> NonZero<u16> {
    NonZero::new(n).expect("some")
}

fn winsize(rows: u16, columns: u16) -> Winsize {
    Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }
}

fn resize(terminal: &OwnedFd, rows: u16, columns: u16) {
    tcsetwinsize(terminal, winsize(rows, columns)).expect("resized");
}

fn steps(count: usize, run: &str) -> String {
    let steps: Vec<String> =
        (0..count).map(|n| format!("  step-{n:02}: {{ run: \"{run}\" }}\n")).collect();
    format!("name: many\nsteps:\n{}", steps.concat())
}

fn start(place: &Place, rows: u16, columns: u16, term: &str) -> Terminal {
    let file = place.path("job.yaml");
    let command = place.command(&["run", "--slots", "2", file.to_str().expect("plain")]);
    Terminal::start(&command, rows, columns, term)
}

#[test]
fn a_picture_never_outgrows_its_terminal_and_the_steps_stay_at_the_end() {
    let place = Place::new(&steps(60, "sleep 0.2"));
    let terminal = start(&place, 8, 40, "xterm");
    terminal.shows("… and 55 more: 5");
    let (code, all) = terminal.end();
    assert_eq!(code, Some(0), "{all}");
    assert!(!all.contains(['█', '░', '…']), "nothing is left of the pictures:\n{all}");
    for n in 0..60 {
        let step = format!("✓ step-{n:02}");
        assert_eq!(all.matches(&step).count(), 1, "{step} in\n{all}");
    }
    assert!(all.contains("succeeded after"), "{all}");
}

#[test]
fn a_terminal_may_change_its_size() {
    let place = Place::new(&steps(12, "while [ ! -e $GO ]; do sleep 0.02; done"));
    let file = place.path("job.yaml");
    let mut command = place.command(&["run", "--slots", "2", file.to_str().expect("plain")]);
    command.env("GO", place.path("go"));
    let terminal = Terminal::start(&command, 24, 80, "xterm");
    terminal.shows("step-11");
    terminal.resize(6, 30);
    terminal.shows("… and 9 more");
    assert_eq!(terminal.screen().matches("many  ").count(), 1, "{}", terminal.screen());
    terminal.resize(24, 100);
    terminal.shows("step-11");
    // What the small terminal had pushed out above its edge nobody can take back.
    let screen = terminal.screen();
    let last = screen.rfind("many  ").expect("a picture");
    assert_eq!(screen[last..].trim_end().lines().count(), 13, "{screen}");
    std::fs::write(place.path("go"), "").expect("writes");
    let (code, all) = terminal.end();
    assert_eq!(code, Some(0), "{all}");
    assert_eq!(all.matches("✓ step-11").count(), 1, "{all}");
}

#[test]
fn ctrl_c_leaves_how_it_stands_and_how_to_go_on() {
    let place = Place::new(
        "name: long\nsteps:\n  first: { run: 'true' }\n  stubborn:\n    needs: [first]\n    \
         run: \"trap 'touch told; while [ ! -e go ]; do sleep 0.02; done; exit 1' TERM; touch up; \
         while :; do sleep 0.02; done\"\n",
    );
    let mut terminal = start(&place, 24, 80, "xterm");
    terminal.shows("▶ stubborn");
    wait_for("the step to be there", || place.path("up").exists().then_some(()));
    terminal.press_ctrl_c();
    terminal.shows("interrupting: ending what runs; once more kills it");
    wait_for("the step to be told", || place.path("told").exists().then_some(()));
    std::fs::write(place.path("go"), "").expect("writes");
    let (code, all) = terminal.end();
    assert_eq!(code, Some(130), "{all}");
    assert!(!all.contains(['█', '░']), "{all}");
    assert!(!all.contains("interrupting"), "it has been interrupted:\n{all}");
    for said in ["✓ first", "stubborn", "interrupted; go on with", "resume"] {
        assert!(all.contains(said), "{said} in\n{all}");
    }
}

#[test]
fn a_dumb_terminal_is_told_line_by_line() {
    let place = Place::new("name: plain\nsteps: { only: { run: 'true' } }\n");
    let file = place.path("job.yaml");
    let mut command = place.command(&["run", file.to_str().expect("plain")]);
    // A build server says so of itself, and shows colours in what is no terminal at all.
    command.env("CI", "true");
    let terminal = Terminal::start(&command, 24, 80, "dumb");
    let bytes = terminal.bytes.clone();
    let (code, all) = terminal.end();
    assert_eq!(code, Some(0), "{all}");
    assert!(all.contains("only attempt 1 started"), "{all}");
    assert!(!bytes.lock().expect("whole").contains(&0x1b), "{all}");
}

/// What a job prints is not its reader's word: it must not move the cursor, ring, or change the title.
#[test]
fn logs_send_a_terminal_nothing_that_it_obeys_unless_told_to() {
    let place = Place::new(
        "name: loud\nsteps: { only: { run: \"printf '\\\\033]0;title\\\\007\\\\033[31mred\\\\033[2J\\\\tend\\\\n'\" } }\n",
    );
    let file = place.path("job.yaml");
    assert!(place.call(&["run", file.to_str().expect("plain")]).status.success());
    let printed = |flags: &[&str]| {
        let command = place.command(&[&["logs", "last"], flags].concat());
        let terminal = Terminal::start(&command, 24, 80, "xterm");
        let bytes = terminal.bytes.clone();
        assert_eq!(terminal.end().0, Some(0));
        let bytes = bytes.lock().expect("whole");
        String::from_utf8_lossy(&bytes).replace("\r\n", "\n")
    };
    let raw = "\x1b]0;title\x07\x1b[31mred\x1b[2J\tend\n";
    assert_eq!(printed(&[]), "\\u{1b}]0;title\\u{7}\\u{1b}[31mred\\u{1b}[2J\tend\n");
    assert_eq!(printed(&["--raw"]), raw);
    // A pipe obeys nothing.
    assert_eq!(String::from_utf8_lossy(&place.call(&["logs", "last"]).stdout), raw);
}
