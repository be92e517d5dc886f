//! Numbers and sizes in the options of Ganeti's programs.

pub(super) fn parse_integer(text: &str) -> Result<i64, String> {
    text.parse().map_err(|_| format!("cannot parse string '{text}'"))
}

/// Parses a size in MiB, or with a unit: powers of 1024 with `m`, `g`, `t`, powers of 1000 with `M`, `G`, `T`.
pub(super) fn parse_size(text: &str) -> Result<i64, String> {
    let is_part_of_number =
        |(at, character): (usize, char)| character.is_ascii_digit() || (at == 0 && character == '-');
    let end = text.char_indices().find(|each| !is_part_of_number(*each)).map_or(text.len(), |(at, _)| at);
    let (number, unit) = text.split_at(end);
    let unparsed = || format!("Can't parse string '{text}'");
    let number: i128 = number.parse().map_err(|_| unparsed())?;
    let mebibyte = 1_i128 << 20;
    let bytes = match unit {
        "" => mebibyte,
        "M" => 1_000_000,
        "G" => 1_000_000_000,
        "T" => 1_000_000_000_000,
        _ => match unit.to_ascii_lowercase().as_str() {
            "m" | "mib" => mebibyte,
            "g" | "gib" => mebibyte << 10,
            "t" | "tib" => mebibyte << 20,
            "mb" => 1_000_000,
            "gb" => 1_000_000_000,
            "tb" => 1_000_000_000_000,
            _ if unit.chars().all(char::is_alphabetic) => return Err(format!("Unknown unit '{unit}'")),
            _ => return Err(unparsed()),
        },
    };
    number
        .checked_mul(bytes)
        .and_then(|size| i64::try_from(size.div_euclid(mebibyte)).ok())
        .filter(|size| size.unsigned_abs() <= 1 << 50)
        .ok_or_else(unparsed)
}

/// Formats a number as Haskell's `show`: at least one decimal, with an exponent below 0.1 and from 10⁷ on.
pub(super) fn haskell_number(number: f64) -> String {
    if number == 0.0 || (0.1..1e7).contains(&number.abs()) {
        return format!("{number:?}");
    }
    let text = format!("{number:e}");
    match text.split_once('e') {
        Some((digits, exponent)) if !digits.contains('.') => format!("{digits}.0e{exponent}"),
        Some(_) | None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::{haskell_number, parse_size};

    #[test]
    fn sizes_have_the_units_of_hspace() {
        let check = |text: &str, expected: Result<i64, &str>| {
            assert_eq!(parse_size(text), expected.map_err(str::to_owned), "{text}");
        };
        check("4096", Ok(4096));
        check("4g", Ok(4096));
        check("4GiB", Ok(4096));
        check("4G", Ok(3814));
        check("1GB", Ok(953));
        check("8T", Ok(7_629_394));
        check("-1", Ok(-1));
        check("2x", Err("Unknown unit 'x'"));
        check("x", Err("Can't parse string 'x'"));
        check("1.5g", Err("Can't parse string '1.5g'"));
    }

    #[test]
    fn fractions_are_shown_as_by_haskell() {
        let texts = [1.0, 62.25, 0.05, 1.5e7, 0.0].map(haskell_number);
        assert_eq!(texts, ["1.0", "62.25", "5.0e-2", "1.5e7", "0.0"]);
    }
}
