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
use std::sync::atomic::{AtomicI32, Ordering};

use rustix::io::retry_on_intr;
use rustix::process::{
    DumpableBehavior, Pid, WaitOptions, WaitStatus, set_dumpable_behavior, waitpid,
};

use crate::User;

/// What a process may not take over from us: what this program has handlers for, so that none of them
/// runs in a child that has our memory; SIGPIPE, which Rust ignores; and how attempts are ended.
const RESET: [c_int; 6] =
    [libc::SIGHUP, libc::SIGINT, libc::SIGTERM, libc::SIGPIPE, libc::SIGSEGV, libc::SIGBUS];

/// The highest signal that is not a real-time one; nobody here has handlers for those.
const LAST_SIGNAL: c_int = 31;

/// For a dozen system calls; they need less than a tenth of it.
const STACK: usize = 16 * 1024;

thread_local! {
    /// For the next child: a slot starts one after the other.
    static UNUSED_STACK: Cell<Vec<MaybeUninit<u8>>> = const { Cell::new(Vec::new()) };
}

/// The program and what it finds when it begins; no other descriptor is open in it. Ours are not among
/// the first three, which the standard library sees to before `main`.
#[derive(Debug)]
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
    debug_assert_eq!(handled().find(|signal| !RESET.contains(signal)), None, "belongs to RESET");
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
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_PIDFD | libc::SIGCHLD;
    let flags = if child.shares_fds { flags | libc::CLONE_FILES } else { flags };
    let all = signals(libc::sigfillset);
    let mut before = signals(libc::sigemptyset);
    // SAFETY: all pointers are to locals of the right types. With CLONE_VFORK `clone` returns when the
    // child has let go of our memory, so `child`, what it points to and the stack outlive it, and no
    // local is used by both at once but `errno`, which is atomic. No handler of ours runs in the child:
    // all signals are blocked until it has none. Of this thread's own storage the child changes the
    // libc's `errno` only.
    let pid = unsafe {
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        let pid = libc::clone(
            begin,
            top,
            flags,
            (&raw const child).cast_mut().cast(),
            &raw mut fd,
            ptr::null_mut::<c_void>(),
            ptr::null_mut::<c_void>(),
        );
        let pid = if pid == -1 { Err(io::Error::last_os_error()) } else { Ok(pid) };
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, ptr::null_mut());
        pid?
    };
    UNUSED_STACK.set(stack);
    let pid = Pid::from_raw(pid).expect("a child has a number");
    // SAFETY: the kernel has just made it for us.
    let process = Process { pid, fd: unsafe { OwnedFd::from_raw_fd(fd) } };
    match child.errno.load(Ordering::Relaxed) {
        0 => Ok(process),
        errno => {
            process.wait()?;
            Err(io::Error::from_raw_os_error(errno))
        }
    }
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
            for signal in RESET {
                libc::sigaction(signal, &raw const self.default, ptr::null_mut());
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

/// Signals that this process has handlers for.
fn handled() -> impl Iterator<Item = c_int> {
    (1..=LAST_SIGNAL).filter(|signal| {
        let mut action = default_action();
        // SAFETY: it only asks.
        unsafe { libc::sigaction(*signal, ptr::null(), &raw mut action) };
        !matches!(action.sa_sigaction, libc::SIG_DFL | libc::SIG_IGN)
    })
}
