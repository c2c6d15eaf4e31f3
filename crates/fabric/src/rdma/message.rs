//! Header of each message: its kind, and the number of the peer's messages taken since the last header.
//!
//! ```text
//! kind 1 | 0 | credits 2 | payload           kind 1: a message; kind 2: only credits
//! kind 0 | version 1 | messages 2 | operations 2 | reads 1 | private length 1
//!                                            kind 0: hello, the first of each side, the connecting side's first
//! ```
//! Numbers are big-endian. A sender starts with the agreed number of credits, and spends one on each message; a frame
//! with only credits needs none. The receiver returns a credit once the message was taken. Credits travel with the next
//! message in the other direction, or on their own once half of them have accumulated, so that at most two such frames
//! are in flight.

use crate::one_sided::Limits;

pub const HEADER_BYTES: usize = 4;
pub const HELLO_BYTES: usize = 8;
const VERSION: u8 = 1;

/// First message of a side.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RdmaHello {
    pub limits: Limits,
    /// Length of its private data in bytes, because networks pad that with zeros.
    pub private_bytes: u8,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RdmaFrame<'a> {
    Hello(RdmaHello),
    Message { credits: u16, payload: &'a [u8] },
    Credits(u16),
}

impl RdmaHello {
    pub fn encode(&self) -> [u8; HELLO_BYTES] {
        let [messages, operations] = [self.limits.messages.to_be_bytes(), self.limits.operations.to_be_bytes()];
        [
            0,
            VERSION,
            messages[0],
            messages[1],
            operations[0],
            operations[1],
            self.limits.reads_in_flight,
            self.private_bytes,
        ]
    }
}

/// Returns the header of a message with `credits` for the peer, or of a frame with only credits.
pub fn header(credits: u16, is_message: bool) -> [u8; HEADER_BYTES] {
    let credits = credits.to_be_bytes();
    [if is_message { 1 } else { 2 }, 0, credits[0], credits[1]]
}

/// Decodes a frame; `None` if this version does not know it.
pub fn decode(bytes: &[u8]) -> Option<RdmaFrame<'_>> {
    let number = |at: usize| Some(u16::from_be_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]));
    match bytes.first()? {
        0 if bytes.len() == HELLO_BYTES && bytes[1] == VERSION => {
            let limits = Limits { messages: number(2)?, operations: number(4)?, reads_in_flight: bytes[6] };
            let is_useful = limits.messages > 0 && limits.operations > 0;
            is_useful.then_some(RdmaFrame::Hello(RdmaHello { limits, private_bytes: bytes[7] }))
        }
        1 => Some(RdmaFrame::Message { credits: number(2)?, payload: &bytes[HEADER_BYTES..] }),
        2 if bytes.len() == HEADER_BYTES => Some(RdmaFrame::Credits(number(2)?)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_round_trip_and_unknown_are_refused() {
        let limits = Limits { reads_in_flight: 16, operations: 128, messages: 32 };
        let hello = RdmaHello { limits, private_bytes: 56 };
        assert_eq!(decode(&hello.encode()), Some(RdmaFrame::Hello(hello)));
        let message = [&header(258, true)[..], b"text"].concat();
        assert_eq!(decode(&message), Some(RdmaFrame::Message { credits: 258, payload: b"text" }));
        assert_eq!(decode(&header(7, false)), Some(RdmaFrame::Credits(7)));

        let none = RdmaHello { limits: Limits { messages: 0, ..limits }, ..hello };
        let mut newer = hello.encode();
        newer[1] = 2;
        for strange in [&[][..], &[0], &[1, 0, 0], &[2, 0, 0, 1, 9], &[3, 0, 0, 0], &none.encode(), &newer] {
            assert_eq!(decode(strange), None, "{strange:?}");
        }
    }
}
