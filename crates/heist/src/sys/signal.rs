//! Signals: the handler for memory faults, and the registers it may change.

use std::mem::MaybeUninit;
use std::ptr::null_mut;
use std::sync::OnceLock;

/// A memory fault, while its handler runs.
pub(crate) struct Fault<'a> {
    /// The address that was touched.
    pub(crate) address: usize,
    context: &'a mut libc::ucontext_t,
}

/// Where a thread goes on after a fault. Named after the calling convention, not after an
/// architecture.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Redirect {
    pub(crate) instruction: u64,
    pub(crate) stack: u64,
    pub(crate) frame: u64,
    #[cfg_attr(target_arch = "x86_64", expect(dead_code))]
    pub(crate) link: u64,
    pub(crate) arg0: u64,
    pub(crate) arg1: u64,
}

impl Fault<'_> {
    /// Makes the thread go on elsewhere when the handler returns.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn redirect(&mut self, to: Redirect) {
        let registers = &mut self.context.uc_mcontext.gregs;
        registers[libc::REG_RIP as usize] = to.instruction as i64;
        registers[libc::REG_RSP as usize] = to.stack as i64;
        registers[libc::REG_RBP as usize] = to.frame as i64;
        registers[libc::REG_RDI as usize] = to.arg0 as i64;
        registers[libc::REG_RSI as usize] = to.arg1 as i64;
    }

    /// Makes the thread go on elsewhere when the handler returns.
    #[cfg(target_arch = "aarch64")]
    pub(crate) fn redirect(&mut self, to: Redirect) {
        let registers = &mut self.context.uc_mcontext;
        registers.pc = to.instruction;
        registers.sp = to.stack;
        registers.regs[29] = to.frame;
        registers.regs[30] = to.link;
        registers.regs[0] = to.arg0;
        registers.regs[1] = to.arg1;
    }
}

/// What handles a fault: true if it is dealt with.
pub(crate) type FaultHandler = fn(&mut Fault<'_>) -> bool;

static FAULT_HANDLER: OnceLock<FaultHandler> = OnceLock::new();
static BEFORE_US: OnceLock<[libc::sigaction; 2]> = OnceLock::new();

const FAULTS: [libc::c_int; 2] = [libc::SIGSEGV, libc::SIGBUS];

/// Puts `handler` in front of whatever handles memory faults in this process. Once per process.
pub(crate) fn install_fault_handler(handler: FaultHandler) {
    if FAULT_HANDLER.set(handler).is_err() {
        return;
    }
    // Who was there must be known before ours can run.
    BEFORE_US.get_or_init(|| FAULTS.map(|signal| current_action(signal)));
    for signal in FAULTS {
        // SAFETY: all zero is a valid sigaction; every field that matters is set below.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = on_fault as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_NODEFER;
        // SAFETY: `action` is complete, and `on_fault` is async-signal-safe.
        unsafe { libc::sigaction(signal, &raw const action, null_mut()) };
    }
}

fn current_action(signal: libc::c_int) -> libc::sigaction {
    let mut action = MaybeUninit::zeroed();
    // SAFETY: asks only; `action` is valid for the answer, and zeroed is valid if there is none.
    unsafe {
        libc::sigaction(signal, null_mut(), action.as_mut_ptr());
        action.assume_init()
    }
}

extern "C" fn on_fault(
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    // SAFETY: the kernel passes valid pointers to both for a handler with SA_SIGINFO.
    let mut fault = unsafe {
        Fault {
            address: (*info).si_addr() as usize,
            context: &mut *context.cast::<libc::ucontext_t>(),
        }
    };
    let ours = FAULT_HANDLER
        .get()
        .is_some_and(|handler| handler(&mut fault));
    if !ours {
        pass_on(signal, info, context);
    }
}

/// Gives a fault that is not ours to whoever was there before.
fn pass_on(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let which = FAULTS.iter().position(|&fault| fault == signal);
    let before = which.and_then(|which| BEFORE_US.get().map(|actions| actions[which]));
    let handler = before.map_or(libc::SIG_DFL, |action| action.sa_sigaction);
    if handler == libc::SIG_DFL || handler == libc::SIG_IGN {
        // SAFETY: with the default action in place the faulting instruction runs again and ends
        // the process with the right signal.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    } else if before.is_some_and(|action| action.sa_flags & libc::SA_SIGINFO != 0) {
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
