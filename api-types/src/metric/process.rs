//! Metrics of every process.

use super::metrics;

metrics! { Every:
    BUILD_INFO = Gauge "hactl_build_info" ["component", "version"]
        "Running version; always 1.";
    PROCESS_START_TIME = Gauge "hactl_process_start_time_seconds" []
        "Time of the process start, in seconds since 1970.";
    CERTIFICATE_EXPIRY = Gauge "hactl_certificate_not_after_timestamp_seconds" ["certificate"]
        "Time when a certificate expires, in seconds since 1970: server and client_ca (of the API), store and store_ca (of the etcd client). If a file contains several certificates, the first certificate to expire counts; 0 if the file cannot be read.";
}
