//! `purge`: ended jobs go, with everything that was kept of them.

use serde_json::json;
use steadfast_core::time::Timestamp;

use crate::args::{Output, PurgeArgs};
use crate::{Done, Exit, clock, input, jobs};

pub(crate) fn run(args: &PurgeArgs) -> Done {
    let older_ms = args.older.as_millis().min(u128::from(u64::MAX)) as u64;
    let before = Timestamp(clock::now().0.saturating_sub(older_ms));
    jobs::looking(args.common.data.as_deref(), args.common.output, |data, store| {
        let purged = steadfast_server::purge::purge(store, &data.folder, before);
        let purged = purged.map_err(|error| error.to_string())?;
        match args.common.output {
            Output::Json => input::print_json(&json!({ "purged": purged }))?,
            Output::Human => match purged {
                0 => println!("there was nothing to purge"),
                1 => println!("1 job is gone"),
                many => println!("{many} jobs are gone"),
            },
        }
        Ok(Exit::Ok)
    })
}
