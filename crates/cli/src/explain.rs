//! `steadfast explain`: why a job is where it is.

use crate::args::ExplainArgs;
use crate::{Done, Exit, input};

pub(crate) fn run(args: &ExplainArgs) -> Done {
    input::refuse("unsupported", "explain is not there yet", args.output).map(|()| Exit::Wrong)
}
