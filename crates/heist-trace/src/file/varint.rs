//! Numbers of variable length: seven bits a byte, the low ones first.

use super::Error;

pub(super) fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Small numbers of both signs become small numbers.
pub(super) const fn zigzag(value: i64) -> u64 {
    (value << 1 ^ value >> 63) as u64
}

pub(super) const fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

pub(super) fn put_text(out: &mut Vec<u8>, text: &str) {
    put(out, text.len() as u64);
    out.extend_from_slice(text.as_bytes());
}

/// Reads the payload of a section. All errors say the offset in the file.
pub(super) struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
    /// The place of `bytes` in the file.
    base: u64,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(bytes: &'a [u8], base: u64) -> Self {
        Self { bytes, at: 0, base }
    }

    pub(super) fn offset(&self) -> u64 {
        self.base + self.at as u64
    }

    pub(super) fn remaining(&self) -> usize {
        self.bytes.len() - self.at
    }

    pub(super) fn error(&self, what: &'static str) -> Error {
        Error::new(self.offset(), what)
    }

    #[inline]
    pub(super) fn byte(&mut self) -> Result<u8, Error> {
        let Some(&byte) = self.bytes.get(self.at) else {
            return Err(self.error("the section ends inside a value"));
        };
        self.at += 1;
        Ok(byte)
    }

    #[inline]
    pub(super) fn varint(&mut self) -> Result<u64, Error> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            if shift == 63 && byte > 1 {
                break;
            }
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(self.error("a number has more than 64 bits"))
    }

    pub(super) fn small<T: TryFrom<u64>>(&mut self) -> Result<T, Error> {
        let at = self.offset();
        T::try_from(self.varint()?).map_err(|_| Error::new(at, "a number is too large here"))
    }

    pub(super) fn text(&mut self) -> Result<&'a str, Error> {
        let at = self.offset();
        let length = self.varint()?;
        if length > self.remaining() as u64 {
            return Err(Error::new(at, "a text is longer than its section"));
        }
        let bytes = &self.bytes[self.at..][..length as usize];
        self.at += length as usize;
        str::from_utf8(bytes).map_err(|_| Error::new(at, "a text is not UTF-8"))
    }

    /// A number of items of which each takes at least one byte.
    pub(super) fn count(&mut self) -> Result<usize, Error> {
        let at = self.offset();
        let count = self.varint()?;
        if count > self.remaining() as u64 {
            return Err(Error::new(at, "a count is larger than its section"));
        }
        Ok(count as usize)
    }

    pub(super) fn end(&self) -> Result<(), Error> {
        if self.remaining() == 0 { Ok(()) } else { Err(self.error("the section is too long")) }
    }
}

#[test]
fn numbers_survive() {
    for value in [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX >> 1, u64::MAX] {
        let mut bytes = Vec::new();
        put(&mut bytes, value);
        let mut cursor = Cursor::new(&bytes, 0);
        assert_eq!(cursor.varint().unwrap(), value);
        cursor.end().unwrap();
    }
    for value in [0, 1, -1, 77, i64::MIN, i64::MAX] {
        assert_eq!(unzigzag(zigzag(value)), value);
    }
}

#[test]
fn overlong_numbers_are_refused() {
    let bytes = [0xff; 12];
    assert!(Cursor::new(&bytes, 0).varint().is_err());
    assert!(Cursor::new(&[0xff, 0xff], 0).varint().is_err());
}
