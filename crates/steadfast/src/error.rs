//! How a function fails: what went wrong, and whether and when to try again.

use std::fmt;
use std::time::Duration;

use steadfast_core::outcome::{
    ErrorText, Failure, FailureKind, Outcome, Permanence, RequestedDelay,
};

/// What a function returns when it has not succeeded.
///
/// Any error becomes one with `?`, and is tried again as the step's policy says: those of the standard
/// library's kind, `anyhow::Error` and its like, `Box<dyn std::error::Error + Send + Sync>`, a text. Only a box
/// that cannot go to other threads needs [`boxed`](Self::boxed). Like `anyhow::Error`, it is no
/// `std::error::Error` itself.
///
/// ```
/// use std::time::Duration;
/// use steadfast::Error;
///
/// fn parse(text: &str) -> Result<u32, Error> {
///     if text.is_empty() {
///         // Trying again cannot help.
///         return Err(Error::permanent("there is nothing to read"));
///     }
///     if text == "busy" {
///         // Later, and charged like any failure.
///         return Err(Error::new("the other side is busy").retry_after(Duration::from_secs(30)));
///     }
///     Ok(text.parse()?)
/// }
/// assert_eq!(parse("x").unwrap_err().to_string(), "invalid digit found in string");
/// ```
#[derive(Clone, Debug)]
pub struct Error {
    kind: Option<String>,
    message: String,
    permanent: bool,
    asked: Option<RequestedDelay>,
}

impl Error {
    /// Worth another try.
    pub fn new(message: impl fmt::Display) -> Self {
        Self { kind: None, message: message.to_string(), permanent: false, asked: None }
    }

    /// Trying again cannot help: the item stops, whatever its policy says.
    pub fn permanent(message: impl fmt::Display) -> Self {
        Self { permanent: true, ..Self::new(message) }
    }

    /// Of an error that cannot go to other threads: `.map_err(Error::boxed)?`. Others become one by `?` alone.
    ///
    /// ```
    /// fn parse(text: &str) -> Result<u32, Box<dyn std::error::Error>> {
    ///     Ok(text.parse()?)
    /// }
    ///
    /// fn double(text: &str) -> Result<u32, steadfast::Error> {
    ///     Ok(2 * parse(text).map_err(steadfast::Error::boxed)?)
    /// }
    /// assert_eq!(double("x").unwrap_err().to_string(), "invalid digit found in string");
    /// ```
    #[allow(clippy::needless_pass_by_value, reason = "the shape `map_err` wants")]
    pub fn boxed(error: Box<dyn std::error::Error>) -> Self {
        Self::caused(&*error)
    }

    /// Its message, and those of what caused it.
    fn caused(error: &(dyn std::error::Error + 'static)) -> Self {
        let mut message = error.to_string();
        let mut source = error.source();
        while let Some(cause) = source {
            let text = cause.to_string();
            // Many say what their cause says.
            if !message.ends_with(&text) {
                message = format!("{message}: {text}");
            }
            source = cause.source();
        }
        Self::new(message)
    }

    /// What `error` in the rules of a policy can name.
    #[must_use]
    pub fn kind(mut self, kind: impl Into<String>) -> Self {
        self.kind = Some(kind.into());
        self
    }

    /// After this instead of the computed delay; charged like it, up to the policy's `max_retry_after`.
    #[must_use]
    pub fn retry_after(mut self, delay: Duration) -> Self {
        self.asked = Some(RequestedDelay::RetryAfterMs(ms(delay)));
        self
    }

    /// Not now, and not its fault: tried again after this, charged to deferrals alone.
    #[must_use]
    pub fn defer(mut self, delay: Duration) -> Self {
        self.asked = Some(RequestedDelay::DeferMs(ms(delay)));
        self
    }

    pub(crate) fn outcome(self) -> Outcome {
        let Self { kind, message, permanent, asked } = self;
        let permanence = if permanent { Permanence::Said } else { Permanence::Open };
        let error = Some(ErrorText { kind, message });
        let failure = Failure::new(FailureKind::HandlerFailed);
        Outcome::Failed(Failure { permanence, asked, error, ..failure })
    }
}

pub(crate) fn ms(duration: Duration) -> u64 {
    // Never shorter than asked for.
    u64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// Its message, and those of what caused it.
impl<E: Into<Box<dyn std::error::Error + Send + Sync>>> From<E> for Error {
    fn from(error: E) -> Self {
        Self::caused(&*error.into())
    }
}

/// What a function may fail with: whatever becomes an [`Error`], and a box that cannot go to other threads.
/// `How` is found by the compiler.
pub trait FunctionError<How> {
    #[doc(hidden)]
    fn into_error(self) -> Error;
}

/// How most errors become one.
#[derive(Debug)]
pub struct ByConversion;
/// How boxes become one.
#[derive(Debug)]
pub struct ByUnboxing;

impl<E: Into<Error>> FunctionError<ByConversion> for E {
    fn into_error(self) -> Error {
        self.into()
    }
}

impl FunctionError<ByUnboxing> for Box<dyn std::error::Error> {
    fn into_error(self) -> Error {
        Error::boxed(self)
    }
}
