//! Numbered jobs, for the tests of the queues.

#![allow(dead_code, reason = "every test file uses its own part of this")]

use heist_core::list::{Link, Linked};
use std::ptr::NonNull;

pub struct Job {
    id: u32,
    link: Link<Self>,
}

// SAFETY: the link is one field, and jobs stay in their box.
unsafe impl Linked for Job {
    fn link(&self) -> &Link<Self> {
        &self.link
    }
}

impl Job {
    pub const fn new(id: u32) -> Self {
        Self { id, link: Link::new() }
    }
}

/// Jobs that are numbered from zero.
pub fn jobs(n: u32) -> Box<[Job]> {
    (0..n).map(Job::new).collect()
}

/// The number of a queued job.
pub fn id(gp: NonNull<Job>) -> u32 {
    // SAFETY: each test keeps its jobs until the end.
    unsafe { gp.as_ref() }.id
}
