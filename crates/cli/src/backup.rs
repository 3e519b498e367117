//! `backup`: a copy of the data folder that a server can be started with.

use steadfast_store::backup::{Copied, back_up};

use crate::args::{BackupArgs, Output};
use crate::data::Data;
use crate::folder::on_folder;
use crate::{Done, Exit, input};

pub(crate) fn run(args: &BackupArgs) -> Done {
    // Opened first: a folder that nothing was ever run with is no backup to rely on.
    let data = Data::at(args.common.data.as_deref());
    on_folder(data, args.common.output, |data, _| {
        let copied = back_up(&data.folder, &args.dir).map_err(|error| error.to_string())?;
        match args.common.output {
            Output::Json => input::print_json(&copied)?,
            Output::Human => {
                println!("{}", told(&copied));
                println!("to restore, start a server with --data {}", args.dir.display());
            }
        }
        Ok(Exit::Ok)
    })
}

fn told(copied: &Copied) -> String {
    let Copied { jobs, files, logs, others, .. } = copied;
    let count = |n: u64, one: &str| format!("{n} {one}{}", if n == 1 { "" } else { "s" });
    format!(
        "copied {}, {} of theirs, {}, {}",
        count(*jobs, "job"),
        count(*files, "file"),
        count(*logs, "log"),
        others.join(", ")
    )
}
