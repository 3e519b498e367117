//! A process from what is ready to be run, and what our own process shows to those: the one place of the
//! workspace with unsafe code.
//!
//! What `posix_spawn` does, without what it does for callers it knows nothing of. For each process that
//! maps and unmaps a stack, which interrupts every thread of ours, and makes more than a hundred calls
//! about signals: more than a tenth of what a tiny process costs altogether. A pidfd comes for nothing.
//!
//! The child shares our memory, and the calling thread stands still, until it executes the program or
//! gives up. So the child may only make system calls: no lock, no allocation, no panic. Everything that
//! needs one is done by the callers of this module. It opens no file and looks nothing up.

#![allow(
    unsafe_code,
    reason = "no safe way leads to `clone`; the safety of each step is beside it"
)]

use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int, c_long, c_uint, c_void};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd, RawFd};
use std::ptr;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use rustix::io::retry_on_intr;
use rustix::process::{
    DumpableBehavior, Pid, WaitOptions, WaitStatus, set_dumpable_behavior, waitpid,
};

use crate::User;

/// What a process may not take over from us where it is ignored: SIGPIPE, which Rust ignores; and how attempts are
/// ended.
const RESET: [c_int; 4] = [libc::SIGHUP, libc::SIGINT, libc::SIGTERM, libc::SIGPIPE];

/// The highest there is, real-time ones included.
const LAST_SIGNAL: c_int = 64;

/// Of `clone3`, since Linux 5.5: the child begins without handlers, whatever the program around us has.
const CLONE_CLEAR_SIGHAND: u64 = 0x1_0000_0000;

/// For a dozen system calls; they need less than a tenth of it.
const STACK: usize = 16 * 1024;

thread_local! {
    /// For the next child: a slot starts one after the other.
    static UNUSED_STACK: Cell<Vec<MaybeUninit<u8>>> = const { Cell::new(Vec::new()) };
}

/// The program and what it finds when it begins; no other descriptor is open in it. Ours are not among
/// the first three, which the standard library sees to before `main`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Program<'a> {
    pub(crate) path: &'a CStr,
    pub(crate) argv: &'a [&'a CStr],
    /// `NAME=value`.
    pub(crate) env: &'a [&'a CStr],
    pub(crate) cwd: &'a CStr,
    pub(crate) stdin: BorrowedFd<'a>,
    /// Both stdout and stderr.
    pub(crate) output: BorrowedFd<'a>,
    /// Who it is from the start. The folder is entered as who we are.
    pub(crate) user: Option<&'a User>,
    /// `cgroup.procs` of the control group that it begins in.
    pub(crate) cgroup: Option<BorrowedFd<'a>>,
    /// Set to its number before it begins, where the system can.
    pub(crate) born: &'a AtomicI32,
}

/// A child of ours that nobody else waits for, so that until [`Process::wait`] its number is its own.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) pid: Pid,
    /// Its pidfd, readable once it has ended.
    pub(crate) fd: OwnedFd,
}

impl Process {
    /// Waits for its end, and lets go of its number.
    pub(crate) fn wait(&self) -> io::Result<WaitStatus> {
        let waited = retry_on_intr(|| waitpid(Some(self.pid), WaitOptions::empty()))?;
        let (_, status) = waited.expect("without NOHANG there is an answer");
        Ok(status)
    }
}

/// Starts the program as the leader of a process group of its own, with no signal blocked.
pub(crate) fn spawn(program: &Program<'_>) -> io::Result<Process> {
    /// Older kernels do not, and some sandboxes forbid it: then each handler is asked for.
    static CLEARS: AtomicBool = AtomicBool::new(cfg!(target_arch = "x86_64"));
    if CLEARS.load(Ordering::Relaxed) {
        match spawn_with(program, Handlers::Cleared) {
            Err(Spawning::NotCloned(error))
                if matches!(
                    error.raw_os_error(),
                    Some(libc::ENOSYS | libc::EINVAL | libc::EPERM)
                ) =>
            {
                CLEARS.store(false, Ordering::Relaxed);
            }
            spawned => return spawned.map_err(Spawning::into_error),
        }
    }
    spawn_with(program, Handlers::Asked).map_err(Spawning::into_error)
}

/// How no handler of ours comes to run in a child that has our memory.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Handlers {
    /// The kernel begins the child without any.
    Cleared,
    /// The child resets those that there are.
    Asked,
}

/// Why there is no process.
enum Spawning {
    NotCloned(io::Error),
    /// The program could not be executed, or something before that.
    GaveUp(io::Error),
}

impl Spawning {
    fn into_error(self) -> io::Error {
        let (Self::NotCloned(error) | Self::GaveUp(error)) = self;
        error
    }
}

fn spawn_with(program: &Program<'_>, handlers: Handlers) -> Result<Process, Spawning> {
    let mut reset = RESET.to_vec();
    if handlers == Handlers::Asked {
        reset.extend(handled());
    }
    let (argv, env) = (pointers(program.argv), pointers(program.env));
    let child = Child {
        path: program.path.as_ptr(),
        argv: argv.as_ptr(),
        env: env.as_ptr(),
        cwd: program.cwd.as_ptr(),
        stdin: program.stdin.as_raw_fd(),
        output: program.output.as_raw_fd(),
        user: program.user.map(|user| (user.uid, user.gid, &user.groups[..])),
        cgroup: program.cgroup.map_or(-1, |procs| procs.as_raw_fd()),
        shares_fds: can_close_ranges(),
        reset: &reset,
        default: default_action(),
        no_signals: signals(libc::sigemptyset),
        errno: AtomicI32::new(0),
    };
    let mut stack = UNUSED_STACK.take();
    stack.reserve_exact(STACK);
    // SAFETY: within the allocation, or its end; every architecture wants it aligned to 16 at most.
    let top = unsafe { stack.as_mut_ptr().add(STACK) };
    let top = top.wrapping_sub(top as usize % 16).cast::<c_void>();
    let mut fd: RawFd = -1;
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_PIDFD;
    let flags = if child.shares_fds { flags | libc::CLONE_FILES } else { flags };
    let all = signals(libc::sigfillset);
    let mut before = signals(libc::sigemptyset);
    // SAFETY: all pointers are to locals of the right types. With CLONE_VFORK both return when the
    // child has let go of our memory, so `child`, what it points to and the stack outlive it, and no
    // local is used by both at once but `errno`, which is atomic. No handler of ours runs in the child:
    // all signals are blocked until it has none. Of this thread's own storage the child changes the
    // libc's `errno` only.
    let pid = unsafe {
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        let pid = match handlers {
            Handlers::Cleared => {
                clone3(flags, stack.as_mut_ptr().cast(), top, &raw mut fd, program.born, &child)
            }
            Handlers::Asked => {
                let pid = libc::clone(
                    begin,
                    top,
                    flags | libc::SIGCHLD,
                    (&raw const child).cast_mut().cast(),
                    &raw mut fd,
                    ptr::null_mut::<c_void>(),
                    ptr::null_mut::<c_void>(),
                );
                if pid == -1 { Err(io::Error::last_os_error()) } else { Ok(pid) }
            }
        };
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, ptr::null_mut());
        pid
    };
    UNUSED_STACK.set(stack);
    let pid = pid.map_err(Spawning::NotCloned)?;
    let pid = Pid::from_raw(pid).expect("a child has a number");
    // SAFETY: the kernel has just made it for us.
    let process = Process { pid, fd: unsafe { OwnedFd::from_raw_fd(fd) } };
    match child.errno.load(Ordering::Relaxed) {
        0 => Ok(process),
        errno => {
            process.wait().map_err(Spawning::GaveUp)?;
            Err(Spawning::GaveUp(io::Error::from_raw_os_error(errno)))
        }
    }
}

/// As `libc::clone`, which cannot say that handlers are to be cleared. The C library has no function for it: the child
/// must not return to ours, whose frame is on another stack.
///
/// # Safety
///
/// As of `libc::clone` with `begin` and `child`: the stack is from `bottom` to `top`, aligned to 16, and the child's
/// alone; `flags` have `CLONE_VM` and `CLONE_VFORK`.
#[cfg(target_arch = "x86_64")]
unsafe fn clone3(
    flags: c_int,
    bottom: *mut c_void,
    top: *mut c_void,
    fd: *mut RawFd,
    born: &AtomicI32,
    child: &Child<'_>,
) -> io::Result<c_int> {
    // SAFETY: a struct of numbers, of which 0 says nothing.
    let mut arguments: libc::clone_args = unsafe { MaybeUninit::zeroed().assume_init() };
    arguments.flags = flags as u64 | CLONE_CLEAR_SIGHAND | libc::CLONE_PARENT_SETTID as u64;
    arguments.pidfd = fd as u64;
    arguments.parent_tid = born.as_ptr() as u64;
    arguments.exit_signal = libc::SIGCHLD as u64;
    arguments.stack = bottom as u64;
    arguments.stack_size = top as u64 - bottom as u64;
    let begin: extern "C" fn(*mut c_void) -> c_int = begin;
    let pid: i64;
    // SAFETY: the parent sees a system call, which changes rax, rcx and r11 and nothing else of its registers or of
    // its stack. The child has the parent's registers and its own stack, aligned as a call wants it; it calls `begin`
    // and ends.
    unsafe {
        std::arch::asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "xor ebp, ebp",
            "mov rdi, r12",
            "call r13",
            "mov edi, eax",
            "mov eax, {exit}",
            "syscall",
            "ud2",
            "2:",
            exit = const libc::SYS_exit,
            inlateout("rax") libc::SYS_clone3 => pid,
            in("rdi") &raw const arguments,
            in("rsi") size_of::<libc::clone_args>(),
            in("r12") &raw const *child,
            in("r13") begin,
            lateout("rcx") _,
            lateout("r11") _,
        );
    }
    if pid < 0 { Err(io::Error::from_raw_os_error(-pid as i32)) } else { Ok(pid as c_int) }
}

/// Written for one architecture; the others ask for each handler.
///
/// # Safety
///
/// None is needed.
#[cfg(not(target_arch = "x86_64"))]
unsafe fn clone3(
    _: c_int,
    _: *mut c_void,
    _: *mut c_void,
    _: *mut RawFd,
    _: &AtomicI32,
    _: &Child<'_>,
) -> io::Result<c_int> {
    let _ = CLONE_CLEAR_SIGHAND;
    Err(io::Error::from_raw_os_error(libc::ENOSYS))
}

/// What the child needs, all of it valid until it has executed the program or ended.
struct Child<'a> {
    path: *const c_char,
    argv: *const *const c_char,
    env: *const *const c_char,
    cwd: *const c_char,
    stdin: RawFd,
    output: RawFd,
    /// Its user, its group, and what other groups it is in.
    user: Option<(u32, u32, &'a [u32])>,
    /// -1: none.
    cgroup: RawFd,
    /// It begins with our table of descriptors, not with a copy: most of it would be closed again at
    /// once, and until then the pipes of other attempts would not be at their ends.
    shares_fds: bool,
    /// Signals that the program begins with as if nobody had ever said anything about them.
    reset: &'a [c_int],
    default: libc::sigaction,
    no_signals: libc::sigset_t,
    /// Why it gave up.
    errno: AtomicI32,
}

/// Where the child begins. It ends when this returns.
extern "C" fn begin(child: *mut c_void) -> c_int {
    // SAFETY: it is what `spawn` handed to `clone`, and `spawn` waits.
    let child = unsafe { &*child.cast::<Child<'_>>() };
    child.execute();
    let errno = io::Error::last_os_error().raw_os_error();
    child.errno.store(errno.unwrap_or(libc::EINVAL), Ordering::Relaxed);
    127
}

impl Child<'_> {
    /// Returns if something fails, which `errno` then says.
    fn execute(&self) {
        // SAFETY: plain system calls with pointers that are valid as `Child` says. What they change is
        // the child's own: its group, folder and signals are not shared, its descriptors no longer.
        unsafe {
            if libc::setpgid(0, 0) == -1 || libc::chdir(self.cwd) == -1 {
                return;
            }
            if self.cgroup != -1 {
                // Who is not taken in is found in the other ways.
                libc::write(self.cgroup, c"0".as_ptr().cast(), 1);
            }
            // Copies of those that are needed, and of the few below them.
            let end = self.stdin.max(self.output) + 1;
            if self.shares_fds && close_range(end, libc::CLOSE_RANGE_UNSHARE) == -1 {
                return;
            }
            for (from, to) in [(self.stdin, 0), (self.output, 1), (self.output, 2)] {
                if libc::dup2(from, to) == -1 {
                    return;
                }
            }
            if self.shares_fds {
                close_range(3, 0);
            }
            for signal in self.reset {
                libc::sigaction(*signal, &raw const self.default, ptr::null_mut());
            }
            libc::sigprocmask(libc::SIG_SETMASK, &raw const self.no_signals, ptr::null_mut());
            if let Some(user) = self.user
                && !become_user(user)
            {
                return;
            }
            libc::execve(self.path, self.argv, self.env);
        }
    }
}

/// For good: neither the real nor the saved ids stay. Not the functions of the C library, which would change
/// every thread of the process whose memory this is.
fn become_user((uid, gid, groups): (u32, u32, &[u32])) -> bool {
    // SAFETY: system calls of the child's own ids; the list of groups outlives the call.
    unsafe {
        libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr()) == 0
            && libc::syscall(libc::SYS_setresgid, gid, gid, gid) == 0
            && libc::syscall(libc::SYS_setresuid, uid, uid, uid) == 0
    }
}

/// Keeps this process to itself: no other of the same user can look into its memory, its environment or its
/// open files. And what it was given in `variables` is overwritten where the system shows it. To be called
/// first in `main`, after the values were read.
///
/// There are no core dumps of it either. What it executes is not concerned.
pub fn keep_private(variables: &[&CStr]) {
    // What knows no such thing leaves us as we are.
    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
    for name in variables {
        // SAFETY: called before there is a second thread, so that nobody reads or changes the environment
        // meanwhile. What is written stays inside the text that stands there, whose end stays where it is.
        unsafe {
            let value = libc::getenv(name.as_ptr());
            if !value.is_null() {
                ptr::write_bytes(value, 0, libc::strlen(value));
            }
        }
    }
}

/// Since Linux 5.9, but some sandboxes know no such call. Without it a process also gets what whoever
/// started us left open for us.
fn can_close_ranges() -> bool {
    static CAN: LazyLock<bool> = LazyLock::new(|| {
        // SAFETY: no descriptor has such a number.
        unsafe { close_range(RawFd::MAX, 0) == 0 }
    });
    *CAN
}

/// Closes what there is from `first` on; with `CLOSE_RANGE_UNSHARE` only for the caller, which has a
/// table of its own from then on. Not the function of the C library, which older ones lack.
///
/// # Safety
///
/// Nobody goes on to use them.
unsafe fn close_range(first: RawFd, flags: c_uint) -> c_long {
    // SAFETY: as the caller says.
    unsafe { libc::syscall(libc::SYS_close_range, first, c_uint::MAX, flags) }
}

fn pointers(strings: &[&CStr]) -> Vec<*const c_char> {
    strings.iter().map(|string| string.as_ptr()).chain([ptr::null()]).collect()
}

fn signals(fill: unsafe extern "C" fn(*mut libc::sigset_t) -> c_int) -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: `sigemptyset` and `sigfillset` write the whole set, and cannot fail.
    unsafe {
        fill(set.as_mut_ptr());
        set.assume_init()
    }
}

fn default_action() -> libc::sigaction {
    // SAFETY: an action of zeros is `SIG_DFL` with no flags and no signals blocked.
    unsafe { MaybeUninit::zeroed().assume_init() }
}

/// Signals that this process has handlers for. The C library does not tell of its own two.
fn handled() -> impl Iterator<Item = c_int> {
    (1..=LAST_SIGNAL).filter(|signal| {
        let mut action = default_action();
        // SAFETY: it only asks.
        let asked = unsafe { libc::sigaction(*signal, ptr::null(), &raw mut action) };
        asked == 0 && !matches!(action.sa_sigaction, libc::SIG_DFL | libc::SIG_IGN)
    })
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{Read as _, Seek as _};
    use std::os::fd::AsFd as _;
    use std::sync::Arc;

    use super::*;

    /// A program around us may have handlers for anything: neither way of starting a process minds.
    #[test]
    fn a_process_starts_whatever_handlers_there_are() {
        let seen: Vec<_> = [libc::SIGCHLD, libc::SIGUSR1, libc::SIGRTMIN() + 5]
            .into_iter()
            .map(|signal| {
                let seen = Arc::new(AtomicBool::new(false));
                signal_hook::flag::register(signal, seen.clone()).unwrap();
                seen
            })
            .collect();
        let nothing = File::open("/dev/null").unwrap();
        let status = tempfile::tempfile().unwrap();
        let program = Program {
            path: c"/bin/cat",
            argv: &[c"/bin/cat", c"/proc/self/status"],
            env: &[],
            cwd: c"/",
            stdin: nothing.as_fd(),
            output: status.as_fd(),
            user: None,
            cgroup: None,
            born: &AtomicI32::new(0),
        };
        for handlers in [Handlers::Cleared, Handlers::Asked] {
            let process = match spawn_with(&program, handlers) {
                // A kernel or a sandbox without it.
                Err(Spawning::NotCloned(_)) if handlers == Handlers::Cleared => continue,
                spawned => spawned.map_err(Spawning::into_error).unwrap(),
            };
            assert_eq!(process.wait().unwrap().exit_status(), Some(0));
            let mut text = String::new();
            (&status).rewind().unwrap();
            (&status).read_to_string(&mut text).unwrap();
            for set in ["SigBlk:\t", "SigCgt:\t"] {
                let none = format!("{set}0000000000000000\n");
                assert!(text.contains(&none), "none is blocked or handled: {text}");
            }
            status.set_len(0).unwrap();
            (&status).rewind().unwrap();
            let missing = Program { path: c"/no/such/program", ..program };
            let error = spawn_with(&missing, handlers).map_err(Spawning::into_error).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::NotFound);
        }
        assert!(!seen[1].load(Ordering::SeqCst), "a signal that nobody sent");
    }
}
