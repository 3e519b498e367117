//! What pages show, described.

use serde_json::json;
use utoipa::openapi::path::HttpMethod;

use super::super::{Limits, actions, schemas, views};
use super::{Described, Routes, path, query};

impl Routes {
    pub(super) fn with_views(self, limits: Limits) -> Self {
        let text = || json!({"type": "string"});
        let index = json!({"type": "integer", "minimum": 0, "maximum": u32::MAX});
        let most = json!({"type": "integer", "minimum": 1, "maximum": limits.items.most});
        let (get, post) = (HttpMethod::Get, HttpMethod::Post);
        let me = Described::new("whoAmI", "Who asks, and what they may do")
            .answer(200, "Of the token, or of a server that wants none.", "Me")
            .problems(&[]);
        let changes = Described::new("watchJobs", "Which jobs change, as a stream")
            .stream(
                "`event: jobs` at most once a second, with the ids of jobs that have changed since the last one, or with `more` and \
                 none of them if the list is to be read anew. The first has the counts alone. `as_of` is for `/v1/jobs`.",
                "JobsChanged",
            )
            .problems(&[]);
        let items = Described::of_job("listItems", "The items of a step, by index")
            .parameter(path("step", "The name of the step.", &text()))
            .parameter(query("datacenter", "Which run of it; default: the first.", &text()))
            .parameter(query("state", "Only items in this state.", &schemas::item_states()))
            .parameter(query("from", "Only items from this index on.", &index))
            .parameter(query("limit", "How many at most.", &most))
            .answer(
                200,
                "A page of items. It may be short, with `next`, if few of very many are in the state.",
                "ItemsPage",
            )
            .problems(&[400, 404]);
        let plan = Described::of_job("getPlan", "What a job was accepted to do")
            .answer(200, "As `plan -o json` shows it.", "StoredPlan")
            .problems(&[404]);
        let budget = Described::of_job("getBudget", "Who drew on the accounts that items share")
            .answer(200, "What was used of them, and the last 1,000 draws.", "BudgetUse")
            .problems(&[404]);
        let what_if = Described::of_job(
            "judgeAnew",
            "What another policy would have decided about the recorded outcomes",
        )
        .body("application/json", "WhatIf", true)
        .answer(200, "Each recorded decision, and what it would have been.", "WhatIfAnswer")
        .problems(&[400, 404, 413]);
        let minutes = json!({"type": "integer", "minimum": 1, "maximum": 60});
        let overview = Described::new("getOverview", "What this server has seen in the last hour")
            .parameter(query("minutes", "Only the last so many; default 60.", &minutes))
            .answer(200, "In buckets of ten seconds, since the server started at most.", "Overview")
            .problems(&[400]);
        let actions = Described::new("actOnJobs", "Cancel, pause, resume or retry many jobs")
            .body("application/json", "Actions", true)
            .answer(
                200,
                "What was done, or would be, for each; at most 500, then `next`.",
                "ActionsAnswer",
            )
            .problems(&[400, 413]);
        self.add(&get, "/v1/me", views::me, me)
            .add(&get, "/v1/overview", views::overview, overview)
            .add(&post, "/v1/jobs/actions", actions::act, actions)
            .add(&get, "/v1/jobs/changes", views::changes, changes)
            .add(&get, "/v1/jobs/{id}/steps/{step}/items", views::items, items)
            .add(&get, "/v1/jobs/{id}/plan", views::stored_plan, plan)
            .add(&get, "/v1/jobs/{id}/budget", views::budget, budget)
            .add(&post, "/v1/jobs/{id}/what-if", views::what_if, what_if)
    }
}
