//! One job of many steps that depend on each other, each a call that does nothing.

use steadfast::{Job, Step};
use steadfast_benches::{Measured, figure, repeats};

use crate::setup::Bench;

/// Steps of a layer, which may run at once; each needs two of the layer before.
const WIDTH: u32 = 50;

/// A DAG in layers.
pub(crate) async fn layers(steps: u32) {
    let needs = |step: u32| {
        let layer = step / WIDTH * WIDTH;
        match layer.checked_sub(WIDTH) {
            Some(above) => vec![above + step % WIDTH, above + (step + 1) % WIDTH],
            None => vec![],
        }
    };
    run("dag", WIDTH, job(steps, needs), steps).await;
}

/// Each step needs the one before, so that every one waits for two syncs.
pub(crate) async fn chain(steps: u32) {
    let needs = |step: u32| step.checked_sub(1).into_iter().collect();
    run("chain", 1, job(steps, needs), steps).await;
}

fn job(steps: u32, needs: impl Fn(u32) -> Vec<u32>) -> Job {
    let step = |number: u32| {
        let step = Step::call(format!("s{number}"), "nothing").input(&number).expect("JSON");
        step.needs(needs(number).into_iter().map(|needed| format!("s{needed}")))
    };
    (0..steps).fold(Job::new("dag"), |job, number| job.step(step(number)))
}

/// From its submission to its result.
async fn run(workload: &str, slots: u32, job: Job, steps: u32) {
    let mut measured = Measured::new(workload, "step");
    for _ in 0..repeats(3) {
        let bench = Bench::start(slots, 0, None).await;
        let before = bench.server.standing();
        let status = bench.client.run(&job).await.expect("ended");
        let now = bench.server.standing();
        assert!(status.is_success(), "{status:?}");
        measured.add(before, now, steps);
        let each = (now.at - before.at).as_secs_f64() * 1e3 / f64::from(steps);
        figure(workload, "time", "ms/step", each);
    }
    println!("{workload}, {steps} steps: {measured}");
}
