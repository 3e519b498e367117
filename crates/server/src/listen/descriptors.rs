//! How many connections the process has descriptors for. The store and logs need theirs whatever strangers do.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Kept from connections: for the database and its readers, for logs that are written and read, and for the
/// pipes of a worker in the same process.
const RESERVE: u64 = 256;

/// Raises the soft limit as far as that many connections and the reserve need it, and the hard limit allows.
/// No further: processes that a worker starts inherit it. How many connections there may be.
pub fn connections_within(wanted: usize) -> usize {
    let before = getrlimit(Resource::Nofile);
    let needed = (wanted as u64).saturating_add(RESERVE);
    let mut limit = before.current.unwrap_or(u64::MAX);
    if limit < needed {
        let raised = needed.min(before.maximum.unwrap_or(u64::MAX)).max(limit);
        let new = Rlimit { current: Some(raised), maximum: before.maximum };
        match setrlimit(Resource::Nofile, new) {
            Ok(()) => limit = raised,
            Err(error) => tracing::warn!(%error, "the limit of open files cannot be raised"),
        }
    }
    let connections = connections_of(limit, wanted);
    if connections < wanted {
        tracing::warn!(
            limit,
            connections,
            max_connections = wanted,
            "the limit of open files allows fewer connections than server.max_connections; raise it \
             (LimitNOFILE=, ulimit -Hn)"
        );
    }
    connections
}

/// All but the reserve; of a limit that is not much more than the reserve, a quarter.
fn connections_of(limit: u64, wanted: usize) -> usize {
    let most = limit.saturating_sub(RESERVE).max(limit / 4).max(1);
    usize::try_from(most).unwrap_or(usize::MAX).min(wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_the_reserve_alone() {
        for (limit, wanted, connections) in [
            (u64::MAX, 4096, 4096),
            (1 << 20, 4096, 4096),
            (4352, 4096, 4096),
            (4351, 4096, 4095),
            (1024, 4096, 768),
            (300, 4096, 75),
            (0, 4096, 1),
        ] {
            assert_eq!(connections_of(limit, wanted), connections, "{limit}");
        }
    }
}
