//! To be written.
use super::{EnginePage, PageError};

/// Reads a page.
///
/// # Errors
/// See [`PageError`].
pub fn read_page(
    _page: &[u8],
    _content_type: Option<&str>,
    _model: Option<&str>,
) -> Result<EnginePage, PageError> {
    Err(PageError::Truncated)
}
