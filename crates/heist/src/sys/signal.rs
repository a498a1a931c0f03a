//! Signals: the handlers of memory faults and of preemption.

use super::symbols;
use super::walk::Registers;
use std::mem::MaybeUninit;
use std::ptr::null_mut;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

/// A memory fault, while its handler runs.
pub(crate) struct Fault<'a> {
    /// The address that was touched.
    pub(crate) address: usize,
    context: &'a libc::ucontext_t,
}

impl Fault<'_> {
    /// The instruction that faulted.
    pub(crate) fn instruction(&self) -> usize {
        registers(self.context).pc
    }
}

/// The registers of the code that a signal interrupted.
#[cfg(target_arch = "x86_64")]
pub(super) fn registers(context: &libc::ucontext_t) -> Registers {
    let register = |which: libc::c_int| context.uc_mcontext.gregs[which as usize] as usize;
    let (pc, sp, fp) = (register(libc::REG_RIP), register(libc::REG_RSP), register(libc::REG_RBP));
    Registers { pc, sp, fp, lr: 0 }
}

/// The registers of the code that a signal interrupted.
#[cfg(target_arch = "aarch64")]
pub(super) fn registers(context: &libc::ucontext_t) -> Registers {
    let context = &context.uc_mcontext;
    let [fp, lr] = [29, 30].map(|n| context.regs[n] as usize);
    Registers { pc: context.pc as usize, sp: context.sp as usize, fp, lr }
}

/// Handles a fault. It returns only if the fault does not concern the runtime.
pub(crate) type FaultHandler = fn(&Fault<'_>);

static FAULT_HANDLER: OnceLock<FaultHandler> = OnceLock::new();
static BEFORE_US: OnceLock<[libc::sigaction; 2]> = OnceLock::new();

const FAULTS: [libc::c_int; 2] = [libc::SIGSEGV, libc::SIGBUS];

/// Puts `handler` in front of the handler of memory faults in this process. Once per process.
pub(crate) fn install_fault_handler(handler: FaultHandler) {
    if FAULT_HANDLER.set(handler).is_err() {
        return;
    }
    symbols::prepare();
    // The previous handler must be known before the new one can run.
    BEFORE_US.get_or_init(|| FAULTS.map(current_action));
    for signal in FAULTS {
        // SAFETY: all zero is a valid sigaction; every field that matters is set below.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = on_fault as *const () as usize;
        // The signal is not blocked while the handler runs: a fault of the handler itself is
        // delivered to it.
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_NODEFER;
        // SAFETY: `action` is complete, and `on_fault` is async-signal-safe.
        unsafe { libc::sigaction(signal, &raw const action, null_mut()) };
    }
}

/// The signal that preempts a goroutine. Its purpose is urgent data on sockets, which is not used
/// in practice, and it is ignored by default.
pub(crate) const PREEMPT: libc::c_int = libc::SIGURG;

/// User code that the preemption signal has interrupted.
pub(crate) struct Interrupted<'a> {
    context: &'a libc::ucontext_t,
}

impl Interrupted<'_> {
    /// Its registers.
    pub(crate) fn registers(&self) -> Registers {
        registers(self.context)
    }

    /// Whether more signals are blocked than the thread's `usual` ones, as they are while another
    /// handler runs: at least the one that it handles, which was not blocked when it came.
    pub(crate) fn in_another_handler(&self, usual: Blocked) -> bool {
        Blocked::of(&self.context.uc_sigmask).0 & !usual.0 != 0
    }
}

/// Signals that are blocked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Blocked(u64);

impl Blocked {
    pub(crate) const NONE: Self = Self(0);

    /// Unblocks the preemption signal in the calling thread. Returns the signals that stay blocked:
    /// a process inherits them from its parent, and some programs block those that they want to
    /// wait for.
    pub(crate) fn all_but_ours() -> Self {
        Unblocked::new().rest
    }

    /// Changes the blocked signals of the calling thread. Returns the previous ones.
    fn change(how: libc::c_int, set: &libc::sigset_t) -> Self {
        let mut before = empty_set();
        // SAFETY: both sets are valid.
        unsafe { libc::pthread_sigmask(how, set, &raw mut before) };
        Self::of(&before)
    }

    fn of(set: &libc::sigset_t) -> Self {
        // SAFETY: a signal set is plain bits; the kernel's is 64 of them.
        Self(unsafe { std::ptr::from_ref(set).cast::<u64>().read() })
    }
}

/// The preemption signal is unblocked in the calling thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unblocked {
    /// The signals that stay blocked.
    pub(crate) rest: Blocked,
    was_blocked: bool,
}

impl Unblocked {
    /// Unblocks it.
    pub(crate) fn new() -> Self {
        let ours = own_set();
        let (before, ours) = (Blocked::change(libc::SIG_UNBLOCK, &ours).0, Blocked::of(&ours).0);
        Self { rest: Blocked(before & !ours), was_blocked: before & ours != 0 }
    }

    /// Blocks it again, if it was blocked before. For the thread that unblocked it.
    pub(crate) fn restore(self) {
        if self.was_blocked {
            Blocked::change(libc::SIG_BLOCK, &own_set());
        }
    }
}

/// The preemption signal alone.
fn own_set() -> libc::sigset_t {
    let mut ours = empty_set();
    // SAFETY: `ours` is a set, and the number is that of a signal.
    unsafe { libc::sigaddset(&raw mut ours, PREEMPT) };
    ours
}

fn empty_set() -> libc::sigset_t {
    // SAFETY: a signal set is plain bits, and none set is the empty one.
    unsafe { std::mem::zeroed() }
}

/// Handles the preemption signal.
pub(crate) type InterruptHandler = fn(&Interrupted<'_>);

static INTERRUPT_HANDLER: OnceLock<InterruptHandler> = OnceLock::new();
static INTERRUPT_BEFORE_US: OnceLock<libc::sigaction> = OnceLock::new();

/// Puts `handler` in front of the handler of the preemption signal. Once per process.
pub(crate) fn install_interrupt_handler(handler: InterruptHandler) {
    if INTERRUPT_HANDLER.set(handler).is_err() {
        return;
    }
    INTERRUPT_BEFORE_US.get_or_init(|| current_action(PREEMPT));
    // SAFETY: all zero is a valid sigaction; every field that matters is set below.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = on_interrupt as *const () as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
    // SAFETY: `action` is complete. All signals are blocked while the handler sleeps, except those
    // that a fault of its own would raise.
    unsafe {
        libc::sigfillset(&raw mut action.sa_mask);
        for own_fault in
            [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGABRT]
        {
            libc::sigdelset(&raw mut action.sa_mask, own_fault);
        }
        libc::sigaction(PREEMPT, &raw const action, null_mut());
    }
}

extern "C" fn on_interrupt(
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    // SAFETY: errno is this thread's.
    let errno = unsafe { *libc::__errno_location() };
    // SAFETY: the kernel passes a valid context for a handler with SA_SIGINFO.
    let interrupted = Interrupted { context: unsafe { &*context.cast() } };
    // SAFETY: the kernel passes valid information for a handler with SA_SIGINFO.
    let whose = whose(unsafe { &*info });
    if whose != Whose::Theirs
        && let Some(handler) = INTERRUPT_HANDLER.get()
    {
        handler(&interrupted);
    }
    if whose != Whose::Ours
        && let Some(before) = INTERRUPT_BEFORE_US.get()
    {
        let handler = before.sa_sigaction;
        // The default action is to ignore it: there is no handler to call.
        if handler != libc::SIG_DFL && handler != libc::SIG_IGN {
            call(before, signal, info, context);
        }
    }
    // SAFETY: as above; user code must not see that it was interrupted.
    unsafe { *libc::__errno_location() = errno };
}

/// The data of a signal of the runtime, in the kernel's layout.
#[repr(C, align(8))]
pub(crate) struct Marked {
    signal: libc::c_int,
    error: libc::c_int,
    code: libc::c_int,
    gap: libc::c_int,
    sender: libc::pid_t,
    user: libc::uid_t,
    mark: *const u8,
    rest: [u64; 12],
}

const _: () = assert!(size_of::<Marked>() == size_of::<libc::siginfo_t>());

/// The address of this static is the mark.
static MARK: u8 = 0;

/// The data that is sent with the signal.
pub(crate) fn marked() -> Marked {
    Marked {
        signal: PREEMPT,
        error: 0,
        code: libc::SI_QUEUE,
        gap: 0,
        // SAFETY: both only return a value.
        sender: unsafe { libc::getpid() },
        // SAFETY: as above.
        user: unsafe { libc::getuid() },
        mark: &raw const MARK,
        rest: [0; 12],
    }
}

/// Set when a signal of the runtime could not be sent with its mark.
static WITHOUT_MARKS: AtomicBool = AtomicBool::new(false);

/// From now on a signal that a thread of this process sends to another may be the runtime's.
pub(crate) fn go_without_marks() {
    WITHOUT_MARKS.store(true, Ordering::Relaxed);
}

/// The sender of a signal.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Whose {
    Ours,
    /// It has no mark, and the runtime's signals have none any more. Both handlers see it: that of
    /// the runtime does nothing unless its M was asked to stop, and any handler of this signal must
    /// tolerate a spurious one, because the kernel merges several into one.
    Either,
    Theirs,
}

/// The sender of this signal.
fn whose(info: &libc::siginfo_t) -> Whose {
    // SAFETY: signals with these codes carry the sender, and the first a value; the other call only
    // returns a value.
    unsafe {
        let is_marked = || std::ptr::eq(info.si_value().sival_ptr.cast(), &raw const MARK);
        match info.si_code {
            libc::SI_QUEUE | libc::SI_TKILL if info.si_pid() != libc::getpid() => Whose::Theirs,
            libc::SI_QUEUE if is_marked() => Whose::Ours,
            libc::SI_TKILL if WITHOUT_MARKS.load(Ordering::Relaxed) => Whose::Either,
            _ => Whose::Theirs,
        }
    }
}

/// Calls the previous handler.
fn call(
    before: &libc::sigaction,
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    let handler = before.sa_sigaction;
    if before.sa_flags & libc::SA_SIGINFO != 0 {
        // SAFETY: the previous owner registered a function of this type.
        let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) =
            unsafe { std::mem::transmute(handler) };
        handler(signal, info, context);
    } else {
        // SAFETY: the previous owner registered a function of this type.
        let handler: extern "C" fn(libc::c_int) = unsafe { std::mem::transmute(handler) };
        handler(signal);
    }
}

pub(super) fn current_action(signal: libc::c_int) -> libc::sigaction {
    let mut action = MaybeUninit::zeroed();
    // SAFETY: only reads; `action` is valid for the result, and zeroed is valid if there is none.
    unsafe {
        libc::sigaction(signal, null_mut(), action.as_mut_ptr());
        action.assume_init()
    }
}

/// The kernel calls this.
extern "C" fn on_fault(
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    if let Some(handler) = FAULT_HANDLER.get() {
        // SAFETY: the kernel passes valid pointers to both for a handler with SA_SIGINFO.
        let fault = unsafe {
            Fault {
                address: (*info).si_addr() as usize,
                context: &*context.cast::<libc::ucontext_t>(),
            }
        };
        handler(&fault);
    }
    pass_on(signal, info, context);
}

/// The calling thread, which is the library's, handles no signals of the program. It answers the
/// preemption signal: see `sys::halt`.
pub(crate) fn block_all_but_ours() {
    block_all();
    Blocked::change(libc::SIG_UNBLOCK, &own_set());
}

/// The calling thread, which never continues, handles no signals any more except faults.
pub(crate) fn block_all() {
    let mut all = empty_set();
    // SAFETY: `all` is a set.
    unsafe { libc::sigfillset(&raw mut all) };
    for fault in FAULTS {
        // SAFETY: as above, and the number is that of a signal.
        unsafe { libc::sigdelset(&raw mut all, fault) };
    }
    Blocked::change(libc::SIG_BLOCK, &all);
}

/// Ends the process with `code` after `seconds`, whatever the calling thread does by then. For a
/// thread that is about to end the process anyway, and may hang meanwhile: SIGALRM has no other use
/// afterwards.
pub(crate) fn end_process_after(seconds: libc::c_uint, code: libc::c_int) {
    static CODE: AtomicI32 = AtomicI32::new(0);
    extern "C" fn on_alarm(_: libc::c_int) {
        super::stderr::exit_now(CODE.load(Ordering::Relaxed));
    }
    CODE.store(code, Ordering::Relaxed);
    // SAFETY: all zero is a valid sigaction; the handler is async-signal-safe; `alarm` is a set.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_alarm as *const () as usize;
        action.sa_flags = libc::SA_ONSTACK;
        libc::sigaction(libc::SIGALRM, &raw const action, null_mut());
        let mut alarm = empty_set();
        libc::sigaddset(&raw mut alarm, libc::SIGALRM);
        Blocked::change(libc::SIG_UNBLOCK, &alarm);
        libc::alarm(seconds);
    }
}

/// Passes a fault that is not the runtime's to the previous handler.
fn pass_on(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let which = FAULTS.iter().position(|&fault| fault == signal);
    let before = which.and_then(|which| BEFORE_US.get().map(|actions| actions[which]));
    let handler = before.map_or(libc::SIG_DFL, |action| action.sa_sigaction);
    if handler == libc::SIG_DFL || handler == libc::SIG_IGN {
        // SAFETY: with the default action in place the faulting instruction runs again and ends
        // the process with the right signal.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    } else if let Some(before) = before {
        call(&before, signal, info, context);
    }
    // std's handler restores the default action, and then the same fault ends the process.
    if current_action(signal).sa_sigaction == libc::SIG_DFL {
        super::last_words::speak();
    }
}

/// Signals that end a process because of an error, besides memory faults.
const ERRORS: [libc::c_int; 4] = [libc::SIGABRT, libc::SIGILL, libc::SIGFPE, libc::SIGTRAP];

/// Before one of the signals ends the process by its default action, last words are spoken. A
/// program that has its own handler keeps it.
pub(crate) fn speak_before_errors() {
    extern "C" fn on_error(signal: libc::c_int) {
        super::last_words::speak();
        // SAFETY: with the default action the signal ends the process when it is unblocked, as it
        // is when this handler returns.
        unsafe {
            libc::signal(signal, libc::SIG_DFL);
            libc::raise(signal);
        }
    }
    for signal in ERRORS {
        if current_action(signal).sa_sigaction != libc::SIG_DFL {
            continue;
        }
        // SAFETY: all zero is a valid sigaction, and every field that matters is set. The handler
        // is async-signal-safe.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = on_error as *const () as usize;
            action.sa_flags = libc::SA_ONSTACK;
            libc::sigaction(signal, &raw const action, null_mut());
        }
    }
}
