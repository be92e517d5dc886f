//! The output of hactl: results on standard output, all other output on standard error.

use crate::failure::Failure;
use clap::ValueEnum;
use std::borrow::Cow;
use std::io::{ErrorKind, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Use of colors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum ColorChoice {
    /// On terminals, unless NO_COLOR is set
    #[default]
    Auto,
    /// Even if the output is not a terminal
    Always,
    /// No colors
    Never,
}

/// The meaning of a piece of text, which decides its color.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    /// The desired state.
    Good,
    /// A transitional state, or one that needs attention.
    Warn,
    /// A failure.
    Bad,
    /// A heading.
    Bold,
    /// Text of low importance.
    Dim,
    /// Text without a special meaning.
    Plain,
}

/// Standard output and standard error of this process.
#[expect(clippy::struct_excessive_bools, reason = "each is a separate property")]
pub(crate) struct Terminal {
    out_has_color: bool,
    out_is_tty: bool,
    error_has_color: bool,
    quiet: bool,
    verbose: u8,
    progress: bool,
    closed: AtomicBool,
    /// Warnings that are held; `None` if warnings are shown immediately.
    held_warnings: Mutex<Option<Vec<String>>>,
}

impl Terminal {
    /// Creates the terminal from the global flags.
    pub(crate) fn new(color: ColorChoice, quiet: bool, verbose: u8) -> Terminal {
        let allowed = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
            && std::env::var_os("TERM").is_none_or(|term| term != "dumb");
        let colored = |is_terminal: bool| match color {
            ColorChoice::Auto => is_terminal && allowed,
            ColorChoice::Always => true,
            ColorChoice::Never => false,
        };
        let error_is_terminal = std::io::stderr().is_terminal();
        let out_is_tty = std::io::stdout().is_terminal();
        Terminal {
            out_has_color: colored(out_is_tty),
            out_is_tty,
            error_has_color: colored(error_is_terminal),
            quiet,
            verbose,
            progress: error_is_terminal && !quiet,
            closed: AtomicBool::new(false),
            held_warnings: Mutex::new(None),
        }
    }

    /// Writes a result to standard output. If the reader has closed the pipe, output is dropped, and the command
    /// continues: `hactl apply | head -1` still applies all objects.
    pub(crate) fn print(&self, text: &str) {
        if self.closed.load(Ordering::Relaxed) {
            return;
        }
        // Files and pipes receive the text unchanged.
        let text =
            if self.out_is_tty { Cow::Owned(sanitized(text, self.out_has_color)) } else { text.into() };
        let mut stdout = std::io::stdout().lock();
        if let Err(error) = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
            self.closed.store(true, Ordering::Relaxed);
            if error.kind() != ErrorKind::BrokenPipe {
                self.warn(&format!("cannot write standard output: {error}"));
            }
        }
    }

    /// Writes a line of the result.
    pub(crate) fn print_line(&self, text: &str) {
        self.print(&format!("{text}\n"));
    }

    /// Writes a line of confirmation, such as `resource/web created`; `-q` suppresses it.
    pub(crate) fn report(&self, text: &str) {
        if !self.quiet {
            self.print_line(text);
        }
    }

    /// Returns `true` if the reader has closed standard output, which ends a watch.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    /// Shows progress on a terminal.
    pub(crate) fn progress(&self, text: &str) {
        if self.progress {
            self.error_line(&format!("{}{text}{}", self.error_color(Style::Dim), self.error_color_reset()));
        }
    }

    /// Shows information such as the reason for a wait, even without a terminal; `-q` suppresses it.
    pub(crate) fn notice(&self, text: &str) {
        if !self.quiet {
            self.error_line(&format!("{}{text}{}", self.error_color(Style::Dim), self.error_color_reset()));
        }
    }

    /// Shows a remark about the result, such as an empty list, even without a terminal; `-q` suppresses it.
    pub(crate) fn note(&self, text: &str) {
        if !self.quiet {
            self.error_line(text);
        }
    }

    /// Shows a warning, which does not stop the command.
    pub(crate) fn warn(&self, text: &str) {
        if let Some(warnings) = self.lock_held_warnings().as_mut() {
            warnings.push(text.to_owned());
            return;
        }
        self.error_line(&format!(
            "{}warning:{} {text}",
            self.error_color(Style::Warn),
            self.error_color_reset()
        ));
    }

    /// Shows a suggested action, even without a terminal and with `-q`.
    pub(crate) fn hint(&self, text: &str) {
        self.error_line(&format!("hint: {text}"));
    }

    /// Holds warnings until they are released.
    pub(crate) fn hold_warnings(&self) {
        self.lock_held_warnings().get_or_insert_default();
    }

    /// Drops the held warnings for which `keep` is false.
    pub(crate) fn retain_warnings(&self, keep: impl Fn(&str) -> bool) {
        if let Some(warnings) = self.lock_held_warnings().as_mut() {
            warnings.retain(|text| keep(text));
        }
    }

    /// Shows the held warnings for which `keep` is true, and from now on each warning immediately.
    pub(crate) fn release_warnings(&self, keep: impl Fn(&str) -> bool) {
        let held_warnings = self.lock_held_warnings().take().unwrap_or_default();
        held_warnings.iter().filter(|text| keep(text)).for_each(|text| self.warn(text));
    }

    fn lock_held_warnings(&self) -> MutexGuard<'_, Option<Vec<String>>> {
        self.held_warnings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Shows a line if `-v` was given.
    pub(crate) fn debug(&self, text: &str) {
        if self.verbose > 0 {
            self.error_line(text);
        }
    }

    /// Shows the failure of a command.
    pub(crate) fn failure(&self, failure: &Failure) {
        if !failure.message.is_empty() {
            let message = without_error_numbers(&failure.message).replace('\n', "\n  ");
            let title = failure.title();
            self.error_line(&format!(
                "{}{title}:{} {message}",
                self.error_color(Style::Bad),
                self.error_color_reset()
            ));
        }
        if !failure.help.is_empty() {
            self.error_line(&format!("hint: {}", failure.help.replace('\n', "\n  ")));
        }
    }

    /// Returns text for standard output in a style, if colors are on.
    pub(crate) fn paint(&self, style: Style, text: &str) -> String {
        let code = color_code(style);
        if self.out_has_color && !code.is_empty() && !text.is_empty() {
            format!("{code}{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    }

    /// Asks a question on standard error. Returns `true` for the answers `yes` and `y`.
    ///
    /// # Errors
    /// Fails if there is no terminal to ask.
    pub(crate) fn confirm(question: &str) -> Result<bool, Failure> {
        if !std::io::stdin().is_terminal() {
            return Err(Failure::usage("confirmation required, but standard input is not a terminal")
                .help("add --yes to skip the prompt"));
        }
        let mut stderr = std::io::stderr().lock();
        let _ = write!(stderr, "{question} [y/N] ").and_then(|()| stderr.flush());
        drop(stderr);
        let mut answer = String::new();
        std::io::stdin()
            .read_line(&mut answer)
            .map_err(|error| Failure::failed(format!("cannot read the answer: {error}")))?;
        Ok(matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
    }

    /// Writes lines to standard error, without the title of a message.
    pub(crate) fn error_line(&self, text: &str) {
        // If standard error is closed, the error cannot be reported in another way.
        let _ = writeln!(std::io::stderr().lock(), "{}", sanitized(text, self.error_has_color));
    }

    fn error_color(&self, style: Style) -> &'static str {
        if self.error_has_color { color_code(style) } else { "" }
    }

    fn error_color_reset(&self) -> &'static str {
        if self.error_has_color { "\x1b[0m" } else { "" }
    }
}

fn color_code(style: Style) -> &'static str {
    match style {
        Style::Good => "\x1b[32m",
        Style::Warn => "\x1b[33m",
        Style::Bad => "\x1b[31m",
        Style::Bold => "\x1b[1m",
        Style::Dim => "\x1b[2m",
        Style::Plain => "",
    }
}

/// Returns a text without control characters except line ends and tabs, so that external text cannot control the
/// terminal. With `keep_colors`, color codes stay; other escape sequences are removed, because they could overwrite any
/// part of the screen.
fn sanitized(text: &str, keep_colors: bool) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(character) = rest.chars().next() {
        let color = if keep_colors { color_length(rest) } else { 0 };
        if color > 0 {
            shown.push_str(&rest[..color]);
            rest = &rest[color..];
            continue;
        }
        shown.push(match character {
            '\n' | '\t' => character,
            other if other.is_control() => '?',
            other => other,
        });
        rest = &rest[character.len_utf8()..];
    }
    shown
}

/// Returns the length of the color code at the beginning of a text; 0 if there is none.
fn color_length(text: &str) -> usize {
    let Some(rest) = text.strip_prefix("\x1b[") else { return 0 };
    match rest.find(|letter: char| !letter.is_ascii_digit() && letter != ';') {
        Some(end) if rest[end..].starts_with('m') => "\x1b[".len() + end + 1,
        Some(_) | None => 0,
    }
}

/// Returns a message without the numbers that Rust adds to errors of the system, such as ` (os error 2)`.
fn without_error_numbers(message: &str) -> String {
    let mut parts = message.split(" (os error ");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| text + part.split_once(')').map_or("", |(_, rest)| rest))
}

/// Returns a size in binary units.
pub(crate) fn byte_text(count: u64) -> String {
    let mut amount = count as f64;
    for unit in ["B", "KiB", "MiB"] {
        if amount < 1024.0 {
            return format!("{amount:.0} {unit}");
        }
        amount /= 1024.0;
    }
    format!("{amount:.1} GiB")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn external_text_cannot_control_the_terminal() {
        let check = |text: &str, plain: &str, colored: &str| {
            assert_eq!(sanitized(text, false), plain);
            assert_eq!(sanitized(text, true), colored);
        };
        check("a\tb\nü", "a\tb\nü", "a\tb\nü");
        check("\x1b[33mwarning:\x1b[0m x", "?[33mwarning:?[0m x", "\x1b[33mwarning:\x1b[0m x");
        check("\x1b[2Ja\r\x07", "?[2Ja??", "?[2Ja??");
        check("\x1b]0;title\x07\u{9b}2J", "?]0;title??2J", "?]0;title??2J");
        check("\x1b[1;31", "?[1;31", "?[1;31");
        check("\x1b", "?", "?");
    }
}
