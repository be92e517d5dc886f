//! Metrics of every process.

use super::metrics;

metrics! { Every:
    BUILD_INFO = Gauge "hactl_build_info" ["component", "version"]
        "The running version; always 1.";
    PROCESS_START_TIME = Gauge "hactl_process_start_time_seconds" []
        "When the process started, in seconds since 1970.";
    CERTIFICATE_EXPIRY = Gauge "hactl_certificate_not_after_timestamp_seconds" ["certificate"]
        "When a certificate that this process uses expires, in seconds since 1970: server, client_ca (of the API), store and store_ca (of the store's client). The first to expire of a file counts; a file that cannot be read shows 0.";
}
