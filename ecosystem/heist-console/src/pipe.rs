//! A pipe inside the process, with a bounded capacity.
//!
//! The collector of the trace writes whole sections. If the reader is late the collector waits, and
//! the runtime counts the records for which it then has no buffer.

use std::io::{self, Read, Write};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

/// Sections that may be in the pipe. One has some 20 KB.
const SECTIONS_MAX: usize = 64;

pub(crate) fn pipe() -> (PipeWriter, PipeReader) {
    let (sender, receiver) = sync_channel(SECTIONS_MAX);
    (PipeWriter(sender), PipeReader { receiver, piece: Vec::new(), at: 0 })
}

pub(crate) struct PipeWriter(SyncSender<Vec<u8>>);

impl Write for PipeWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let sent = self.0.send(bytes.to_vec());
        sent.map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

pub(crate) struct PipeReader {
    receiver: Receiver<Vec<u8>>,
    piece: Vec<u8>,
    at: usize,
}

impl Read for PipeReader {
    /// Waits for bytes; answers 0 when the writer is gone.
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.at == self.piece.len() {
            let Ok(piece) = self.receiver.recv() else { return Ok(0) };
            (self.piece, self.at) = (piece, 0);
        }
        let rest = &self.piece[self.at..];
        let n = rest.len().min(buffer.len());
        buffer[..n].copy_from_slice(&rest[..n]);
        self.at += n;
        Ok(n)
    }
}

#[test]
fn bytes_go_through_in_order_until_the_writer_is_gone() {
    let (mut writer, mut reader) = pipe();
    writer.write_all(b"one ").unwrap();
    writer.write_all(b"").unwrap();
    writer.write_all(b"two").unwrap();
    drop(writer);
    let mut all = String::new();
    reader.read_to_string(&mut all).unwrap();
    assert_eq!(all, "one two");
    let (mut writer, reader) = pipe();
    drop(reader);
    assert_eq!(writer.write(b"x").unwrap_err().kind(), io::ErrorKind::BrokenPipe);
}
