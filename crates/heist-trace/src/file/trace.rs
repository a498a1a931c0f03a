//! A whole file in memory.

use super::{Block, Clock, Drops, Ending, Error, Frame, Goroutine, Header, Reader, Section, Site};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io::Read;
use std::sync::Arc;

/// A whole trace. Events take 16 bytes each.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    /// What the file says about the program.
    pub header: Header,
    /// Moments on all clocks, by ticks.
    pub clocks: Vec<Clock>,
    /// The texts that events name.
    pub strings: HashMap<u64, String>,
    /// The sites that events name.
    pub sites: HashMap<u64, Site>,
    /// The stacks that events name, the innermost call first.
    pub stacks: HashMap<u64, Vec<Frame>>,
    /// The events, in the order of the file.
    pub blocks: Vec<Block>,
    /// Snapshots of all goroutines with their times in ticks.
    pub snapshots: Vec<(u64, Vec<Goroutine>)>,
    /// Lost records.
    pub drops: Vec<Drops>,
    /// The byte after the last whole section, if the file ends early.
    pub truncated: Option<u64>,
}

impl Trace {
    /// Reads a file to its end. `progress` is told how many bytes were read, after each section.
    ///
    /// # Errors
    /// If the file is damaged or cannot be read. A file that only ends early is no error.
    pub fn read(input: impl Read, mut progress: impl FnMut(u64)) -> Result<Self, Error> {
        let mut reader = Reader::new(input)?;
        let mut trace = Self { header: reader.header().clone(), ..Self::default() };
        let mut snapshots = Vec::new();
        while let Some(section) = reader.next()? {
            match section {
                Section::Clock(clock) => trace.clocks.push(clock),
                Section::String(number, text) => _ = trace.strings.insert(number, text),
                Section::Site(number, site) => _ = trace.sites.insert(number, site),
                Section::Stack(number, frames) => _ = trace.stacks.insert(number, frames),
                Section::Block(block) => trace.blocks.push(block),
                Section::Snapshot(ticks, goroutines) => snapshots.push((ticks, goroutines)),
                Section::Drops(drops) => trace.drops.push(drops),
            }
            progress(reader.offset());
        }
        if let Ending::Truncated { offset } = reader.ending() {
            trace.truncated = Some(offset);
        }
        trace.clocks.sort_by_key(|clock| clock.ticks);
        let mut shared: HashMap<u64, Arc<Site>> = HashMap::new();
        for (ticks, goroutines) in snapshots {
            let mut site = |number: u64| match shared.entry(number) {
                Entry::Occupied(found) => Some(Arc::clone(found.get())),
                Entry::Vacant(free) => {
                    let site = trace.sites.get(&number)?;
                    Some(Arc::clone(free.insert(Arc::new(site.clone()))))
                }
            };
            let named = goroutines
                .into_iter()
                .map(|(goroutine, number)| Goroutine { site: site(number), ..goroutine });
            trace.snapshots.push((ticks, named.collect()));
        }
        Ok(trace)
    }

    /// Whether the file has its end marker.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.truncated.is_none()
    }

    /// How many events there are.
    #[must_use]
    pub fn n_records(&self) -> usize {
        self.blocks.iter().map(|block| block.records.len()).sum()
    }
}
