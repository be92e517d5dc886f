//! Reasons for which the API rejects a request: the closed vocabulary of `metav1.Status`, with HTTP status and suggested
//! action.

use std::fmt;

macro_rules! error_reasons {
    ($( $name:ident = $code:literal, $meaning:literal, $help:literal; )+) => {
        /// A reason for a rejected request. Each is a word of Kubernetes, so that Kubernetes clients handle it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum ErrorReason {
            $( #[doc = $meaning] $name, )+
        }

        impl ErrorReason {
            /// Every reason, ordered by HTTP status.
            pub const ALL: &'static [ErrorReason] = &[ $( ErrorReason::$name, )+ ];

            /// Returns the word.
            pub fn as_str(self) -> &'static str {
                match self { $( ErrorReason::$name => stringify!($name), )+ }
            }

            /// Returns the HTTP status.
            pub fn code(self) -> u16 {
                match self { $( ErrorReason::$name => $code, )+ }
            }

            /// Returns the meaning, as a sentence.
            pub fn meaning(self) -> &'static str {
                match self { $( ErrorReason::$name => $meaning, )+ }
            }

            /// Returns the suggested action: lower case, no full stop.
            pub fn help(self) -> &'static str {
                match self { $( ErrorReason::$name => $help, )+ }
            }
        }
    };
}

error_reasons! {
    BadRequest = 400, "The request or its body cannot be read.", "correct what the message and the causes name";
    Forbidden = 403, "The client's certificate does not allow it.", "use the right certificate";
    NotFound = 404, "There is no such object or path.", "look at the name and the kind: `hactl get`";
    MethodNotAllowed = 405, "The object takes no such request.", "use the commands of hactl, or those of [the API](../api.md)";
    NotAcceptable = 406, "The client accepts no form that the API can give.", "accept `application/json`";
    AlreadyExists = 409, "An object of this name is there.", "change it instead (`hactl apply`), or take another name";
    Conflict = 409, "The object has changed since it was read, another manager owns the field, or its state does not allow the change.",
        "read it again and repeat; what the causes name must be resolved first";
    Expired = 410, "The revision to watch or list from is compacted.", "list again";
    RequestEntityTooLarge = 413, "The body is too large.", "split it";
    UnsupportedMediaType = 415, "The body has an unknown form.", "send one of those that the message names";
    Invalid = 422, "Fields have values that are not allowed.", "correct the fields that the causes name";
    TooManyRequests = 429, "Too many watches are open.", "wait as `Retry-After` says";
    InternalError = 500, "A bug of the controller.", "look into the controller's journal, and tell us";
    ServiceUnavailable = 503, "The controller cannot answer now: its store is away, or it is not ready.", "ask another controller, or wait as `Retry-After` says";
    Timeout = 504, "The store did not answer: the change may or may not have been made.", "look, and repeat it if it was not";
}

impl fmt::Display for ErrorReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
