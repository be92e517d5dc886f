//! Parser for podman's format of a program's two outputs over one connection: frames of a stream number, a length and
//! text.

/// Returns the text of both outputs in the order of arrival, without a header that is cut off at the end.
pub(super) fn text(bytes: &[u8]) -> String {
    let (mut out, mut rest) = (Vec::new(), bytes);
    while let Some((header, after)) = rest.split_first_chunk::<8>() {
        let [_, _, _, _, length @ ..] = *header;
        let length = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
        let (frame, next) = after.split_at(length.min(after.len()));
        out.extend_from_slice(frame);
        rest = next;
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// Removes the complete frames from the start of `bytes`, and passes their texts on. The rest continues with what
/// arrives next.
pub(super) fn take_complete(bytes: &mut Vec<u8>, mut with: impl FnMut(&[u8])) {
    let mut taken = 0;
    while let Some((header, after)) = bytes[taken..].split_first_chunk::<8>() {
        let [_, _, _, _, length @ ..] = *header;
        let length = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
        let Some(text) = after.get(..length) else { break };
        with(text);
        taken += header.len() + length;
    }
    bytes.drain(..taken);
}

/// Returns the last line that is not blank, without control characters and at most 300 characters long.
pub(super) fn last_line(text: &str) -> Option<String> {
    const LENGTH_MAX: usize = 300;
    let last = text.lines().map(str::trim).rfind(|line| !line.is_empty())?;
    Some(last.chars().filter(|c| !c.is_control()).take(LENGTH_MAX).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(bytes: &[u8], expected: &str) {
        assert_eq!(text(bytes), expected, "{bytes:?}");
    }

    #[test]
    fn frames_become_text() {
        check(b"", "");
        check(b"\x01\0\0\0\0\0\0\x04out\n\x02\0\0\0\0\0\0\x04err\n", "out\nerr\n");
        check(b"\x01\0\0\0\0\0\0\x09cut", "cut");
        check(b"\x01\0\0\0\xff\xff\xff\xffx", "x");
        check(b"\x01\0\0", "");
    }

    #[test]
    fn frames_that_arrive_in_pieces_are_joined() {
        let all = b"\x01\0\0\0\0\0\0\x04out\n\x02\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\x04err\n\x01\0\0";
        for size in 1..all.len() {
            let (mut bytes, mut out) = (Vec::new(), Vec::new());
            for piece in all.chunks(size) {
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
    fn the_last_line_is_told() {
        assert_eq!(last_line("first\nlast one \n\n").as_deref(), Some("last one"));
        assert_eq!(last_line(" \n"), None);
        assert_eq!(last_line("\u{1b}[31mred").as_deref(), Some("[31mred"));
    }
}
