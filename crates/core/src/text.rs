//! What others wrote, fit for our messages.

/// Text of others, fit for a message: short, and with nothing that moves a cursor.
pub fn quote(text: &str) -> String {
    const LONGEST: usize = 40;
    let mut short: String = text
        .chars()
        .take(LONGEST)
        .flat_map(|c| {
            let plain = c == '\'' || c == '"' || c == '\\';
            let escaped = (!plain).then(|| c.escape_debug());
            plain.then_some(c).into_iter().chain(escaped.into_iter().flatten())
        })
        .collect();
    if text.chars().nth(LONGEST).is_some() {
        short.push('…');
    }
    format!("`{short}`")
}

/// No longer than `most` characters; what was left out is said.
pub fn shorten(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}
