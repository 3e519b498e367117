//! The server and its workers as real processes on loopback, through everything that befalls them.
//!
//! What is tested is what a user sees: the REST answers, the events, the logs, and which processes
//! really ran, which they tell by appending to files outside of the product.

mod disk;

mod e2e {
    mod ahead;
    mod blobs;
    mod clients;
    mod cluster;
    mod cluster_storm;
    mod datacenters;
    mod doors;
    mod fluster;
    mod folder;
    mod force;
    mod forgery;
    mod harness;
    mod heartbeats;
    mod ledger;
    mod local_jobs;
    mod losses;
    mod migrate;
    mod places;
    mod played;
    mod postgres;
    mod private;
    mod proxy;
    mod readiness_view;
    mod rest;
    mod restarts;
    mod retries;
    mod runs_postgres;
    mod seen;
    mod several;
    mod small_disk;
    mod stalls;
    mod storm;
    mod storms;
    mod views;
    mod wire;
}
