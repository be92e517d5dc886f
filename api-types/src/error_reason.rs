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

            /// Returns the reason as one CamelCase word, as in the field `reason` of `metav1.Status`.
            pub fn as_str(self) -> &'static str {
                match self { $( ErrorReason::$name => stringify!($name), )+ }
            }

            /// Returns the HTTP status of an answer with this reason.
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
    BadRequest = 400, "The request or its body cannot be read.", "correct the fields that the message and the causes name";
    Unauthorized = 401, "The client has neither a certificate nor a valid token.", "use a client certificate, or a \
     token that has not expired";
    Forbidden = 403, "The user's roles do not permit the request, or it comes from a web page of another origin.", "use a \
     certificate or token with the required role";
    NotFound = 404, "Object or path not found.", "check the kind and the name: `hactl get`";
    MethodNotAllowed = 405, "The object does not support this method.", "use a command of hactl, or a request of \
     [the API](../api.md)";
    NotAcceptable = 406, "The API cannot respond in a format that the client accepts.", "accept `application/json`";
    AlreadyExists = 409, "An object with this name already exists.", "change the object (`hactl apply`), or use \
     another name";
    Conflict = 409, "The object has changed since it was read, another manager owns the field, or its state does not allow the change.",
        "resolve the listed causes, read the object again and retry";
    Expired = 410, "The revision to watch or list from has been compacted.", "list again";
    RequestEntityTooLarge = 413, "The request body, or the resulting object, is too large.", "split the request into smaller requests, or shorten the part that the message names";
    UnsupportedMediaType = 415, "The request body has an unsupported format.", "send one of the formats that the \
     message lists";
    Invalid = 422, "Fields have invalid values.", "correct the fields that the causes name";
    TooManyRequests = 429, "Too many connections, watches or requests for logs are open.", "wait for the time in `Retry-After`";
    InternalError = 500, "An agent could not read a log, or the controller has an internal error (a bug).", "follow the message; report a bug with the \
     journal of the controller";
    ServiceUnavailable = 503, "The controller is not ready, etcd is unreachable, or the agent of a node is not online.", "use another controller, or \
     wait for the time in `Retry-After`";
    Timeout = 504, "etcd did not respond: the change may or may not have been made. Or an agent did not respond to a request for a log.",
        "check the object, and retry if it was not changed";
}

impl fmt::Display for ErrorReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
