//! The CPUs: threads that want to run take turns if there are too few.
//!
//! The kernel's scheduler is a queue here: a thread runs for a turn, and then the one that has
//! waited longest. A thread that becomes runnable never preempts another.

use super::Sim;
use crate::events::{Event, Kind};
use crate::machines::Todo;
use crate::stats::Spent;
use std::collections::VecDeque;

/// The CPUs.
#[derive(Debug)]
pub(super) struct Cpus {
    free: u32,
    waiting: VecDeque<u32>,
}

impl Cpus {
    pub(super) const fn new(n: u32) -> Self {
        Self { free: n, waiting: VecDeque::new() }
    }

    /// Whether a thread waits for a CPU.
    pub(super) fn is_short(&self) -> bool {
        !self.waiting.is_empty()
    }
}

impl Sim<'_> {
    /// Lets an M spend `ns` before its next step.
    pub(super) fn go_on(&mut self, m: u32, ns: u64) {
        let machine = &mut self.ms[m as usize];
        machine.left_ns = ns;
        machine.step_from_ns = self.now_ns;
        if machine.on_cpu { self.take_turn(m) } else { self.want_cpu(m) }
    }

    /// Gives an M a CPU as soon as one is free.
    fn want_cpu(&mut self, m: u32) {
        if self.cpus.free == 0 {
            return self.cpus.waiting.push_back(m);
        }
        self.cpus.free -= 1;
        self.get_cpu(m);
    }

    fn get_cpu(&mut self, m: u32) {
        let machine = &mut self.ms[m as usize];
        machine.on_cpu = true;
        machine.turn_until_ns = self.now_ns + self.config.costs.cpu_slice();
        self.take_turn(m);
    }

    /// Plans the end of a step, or of the turn on the CPU if that is sooner.
    fn take_turn(&mut self, m: u32) {
        let now_ns = self.now_ns;
        if self.ms[m as usize].turn_until_ns <= now_ns {
            if self.cpus.is_short() {
                return self.give_turn(m);
            }
            self.ms[m as usize].turn_until_ns = now_ns + self.config.costs.cpu_slice();
        }
        let machine = &mut self.ms[m as usize];
        let ns = machine.left_ns.min(machine.turn_until_ns - now_ns);
        machine.left_ns -= ns;
        let event = Event::new(Kind::Machine, m, machine.generation);
        self.calendar.plan(now_ns + ns, event);
    }

    /// Puts an M behind the threads that wait for a CPU, and lets the first of them run.
    fn give_turn(&mut self, m: u32) {
        let ns = self.config.costs.kernel_switch();
        self.report.cpu_ns[Spent::Kernel as usize] += ns;
        let machine = &mut self.ms[m as usize];
        machine.on_cpu = false;
        machine.left_ns += ns;
        self.cpus.waiting.push_back(m);
        self.cpu_is_free();
    }

    fn cpu_is_free(&mut self) {
        match self.cpus.waiting.pop_front() {
            Some(m) => self.get_cpu(m),
            None => self.cpus.free += 1,
        }
    }

    /// Takes an M off its CPU: it sleeps or blocks.
    pub(super) fn leave_cpu(&mut self, m: u32) {
        let machine = &mut self.ms[m as usize];
        assert!(machine.on_cpu, "an M without a CPU cannot leave one");
        machine.on_cpu = false;
        self.cpu_is_free();
    }

    pub(super) fn machine_event(&mut self, event: Event) {
        let m = event.id;
        let machine = &self.ms[m as usize];
        if Event::new(Kind::Machine, m, machine.generation) != event {
            return;
        }
        if !machine.on_cpu {
            return self.go_on(m, 0);
        }
        if machine.left_ns > 0 {
            return self.take_turn(m);
        }
        self.step(m);
    }

    /// Wakes an M after `delay_ns`, to take this step.
    pub(super) fn start_thread(&mut self, m: u32, delay_ns: u64, todo: Todo) {
        let machine = &mut self.ms[m as usize];
        machine.generation = machine.generation.wrapping_add(1);
        machine.todo = todo;
        let event = Event::new(Kind::Machine, m, machine.generation);
        self.calendar.plan(self.now_ns + self.step_ns + delay_ns, event);
    }
}
