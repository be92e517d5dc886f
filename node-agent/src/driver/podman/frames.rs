//! Parser for podman's format of a program's two outputs over one connection: frames of a stream number, a length and
//! text.

/// Returns the text of both outputs in the order of arrival, without a header that is cut off at the end.
pub(super) fn text(bytes: &[u8]) -> String {
    let (mut text, mut rest) = (Vec::new(), bytes);
    while let Some((header, remaining)) = rest.split_first_chunk::<8>() {
        let [_, _, _, _, length @ ..] = *header;
        let length = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
        let (frame, next) = remaining.split_at(length.min(remaining.len()));
        text.extend_from_slice(frame);
        rest = next;
    }
    String::from_utf8_lossy(&text).into_owned()
}

/// Removes the complete frames from the start of `bytes`, and passes their texts on. The rest remains in `bytes`, for
/// the text that arrives next.
pub(super) fn take_complete(bytes: &mut Vec<u8>, mut handle_text: impl FnMut(&[u8])) {
    let mut consumed_bytes = 0;
    while let Some((header, remaining)) = bytes[consumed_bytes..].split_first_chunk::<8>() {
        let [_, _, _, _, length @ ..] = *header;
        let length = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
        let Some(text) = remaining.get(..length) else { break };
        handle_text(text);
        consumed_bytes += header.len() + length;
    }
    bytes.drain(..consumed_bytes);
}

/// Returns the last line that is not blank, without control characters and at most 300 characters long.
pub(super) fn last_line(text: &str) -> Option<String> {
    const MAX_LENGTH: usize = 300;
    let last = text.lines().map(str::trim).rfind(|line| !line.is_empty())?;
    Some(last.chars().filter(|c| !c.is_control()).take(MAX_LENGTH).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(bytes: &[u8], expected: &str) {
        assert_eq!(text(bytes), expected, "{bytes:?}");
    }

    #[test]
    fn log_frames_are_decoded_to_text() {
        check(b"", "");
        check(b"\x01\0\0\0\0\0\0\x04out\n\x02\0\0\0\0\0\0\x04err\n", "out\nerr\n");
        check(b"\x01\0\0\0\0\0\0\x09cut", "cut");
        check(b"\x01\0\0\0\xff\xff\xff\xffx", "x");
        check(b"\x01\0\0", "");
    }

    #[test]
    fn fragmented_log_frames_are_joined() {
        let frames = b"\x01\0\0\0\0\0\0\x04out\n\x02\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\x04err\n\x01\0\0";
        for size in 1..frames.len() {
            let (mut bytes, mut out) = (Vec::new(), Vec::new());
            for piece in frames.chunks(size) {
                bytes.extend_from_slice(piece);
                take_complete(&mut bytes, |text| out.extend_from_slice(text));
            }
            assert_eq!(
                (out.as_slice(), bytes.as_slice()),
                (b"out\nerr\n".as_slice(), b"\x01\0\0".as_slice()),
                "{size}"
            );
        }
    }

    #[test]
    fn last_nonempty_line_is_returned() {
        assert_eq!(last_line("first\nlast one \n\n").as_deref(), Some("last one"));
        assert_eq!(last_line(" \n"), None);
        assert_eq!(last_line("\u{1b}[31mred").as_deref(), Some("[31mred"));
    }
}
