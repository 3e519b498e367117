//! Which step waits for which, as a person would sketch it.
//!
//! Every step stands once, under the last of the steps it needs; the others are named beside it. What
//! follows one another is on one line, and siblings that nothing waits for share one.

use steadfast_core::plan::{ForEach, Plan};

/// Lines that are drawn, and names on a line; the rest is counted.
const LINES: usize = 30;
const NAMES: usize = 8;

/// None: there is nothing to wait for.
pub(crate) fn graph(plan: &Plan) -> Option<String> {
    if plan.steps().iter().all(|step| step.needs.is_empty()) {
        return None;
    }
    let mut graph = Graph::new(plan);
    let roots = std::mem::take(&mut graph.roots);
    graph.siblings(&roots, "", true);
    let hidden = plan.steps().len() - graph.drawn;
    if hidden > 0 {
        let plural = if hidden == 1 { "" } else { "s" };
        graph.text.push_str(&format!("… and {hidden} more step{plural}\n"));
    }
    Some(graph.text)
}

struct Graph<'a> {
    plan: &'a Plan,
    roots: Vec<u32>,
    /// Of each step those that stand under it, and where it stands itself.
    children: Vec<Vec<u32>>,
    under: Vec<Option<u32>>,
    text: String,
    lines: usize,
    drawn: usize,
}

impl<'a> Graph<'a> {
    fn new(plan: &'a Plan) -> Self {
        let depths = depths(plan);
        let mut children = vec![vec![]; plan.steps().len()];
        let (mut roots, mut under) = (vec![], vec![]);
        for (index, step) in plan.steps().iter().enumerate() {
            let last = step.needs.iter().copied().max_by_key(|&need| (depths[need as usize], need));
            under.push(last);
            match last {
                Some(need) => children[need as usize].push(index as u32),
                None => roots.push(index as u32),
            }
        }
        Self { plan, roots, children, under, text: String::new(), lines: 0, drawn: 0 }
    }

    /// A step, how often it runs, and what else it waits for than what it stands under.
    fn label(&self, step: u32) -> String {
        let (step, under) = (self.plan.step(step), self.under[step as usize]);
        let mut label = step.name.clone();
        match &step.for_each {
            ForEach::Once => {}
            ForEach::List(items) => label.push_str(&format!(" ×{}", items.len())),
            ForEach::Range(count) => label.push_str(&format!(" ×{count}")),
            ForEach::Output { .. } => label.push_str(" ×…"),
        }
        let others = step.needs.iter().filter(|&&need| Some(need) != under);
        let others: Vec<&str> = others.map(|&need| self.plan.step(need).name.as_str()).collect();
        if !others.is_empty() {
            label.push_str(&format!(" (and after {})", few(&others, 3)));
        }
        label
    }

    fn line(&mut self, text: &str) {
        self.text.push_str(text);
        self.text.push('\n');
        self.lines += 1;
    }

    /// Steps that stand under the same one. Depth is bounded by the lines: each level draws one first.
    fn siblings(&mut self, steps: &[u32], indent: &str, top: bool) {
        let mut rest = steps;
        while let Some((&first, _)) = rest.split_first() {
            if self.lines >= LINES {
                return;
            }
            // Those that nothing waits for, and that wait for the same.
            let alike = |&step: &u32| {
                self.children[step as usize].is_empty()
                    && self.plan.step(step).needs == self.plan.step(first).needs
            };
            let count = rest.iter().take_while(|step| alike(step)).count().max(1);
            let (now, later) = rest.split_at(count);
            rest = later;
            let (mark, below) = match (top, rest.is_empty()) {
                (true, _) => ("", ""),
                (false, true) => ("└─ ", "   "),
                (false, false) => ("├─ ", "│  "),
            };
            if count > 1 {
                let names: Vec<String> = now.iter().map(|&step| self.label(step)).collect();
                let names: Vec<&str> = names.iter().map(String::as_str).collect();
                self.drawn += now.len();
                self.line(&format!("{indent}{mark}{}", few(&names, NAMES)));
                continue;
            }
            let last = self.chain(first, &format!("{indent}{mark}"));
            let children = std::mem::take(&mut self.children[last as usize]);
            self.siblings(&children, &format!("{indent}{below}"), false);
        }
    }

    /// What stands under nothing else but what stands before it: on one line, up to its last.
    fn chain(&mut self, first: u32, indent: &str) -> u32 {
        let mut chain = vec![first];
        while let [only] = self.children[chain[chain.len() - 1] as usize][..] {
            chain.push(only);
        }
        self.drawn += chain.len();
        let shown = chain.iter().take(NAMES);
        let mut parts: Vec<String> = shown.map(|&step| self.label(step)).collect();
        if chain.len() > NAMES {
            let hidden = chain.len() - NAMES;
            parts.truncate(NAMES - 1);
            parts.push(format!("… {hidden} more"));
            parts.push(self.label(chain[chain.len() - 1]));
        }
        let line = format!("{indent}{}", parts.join(" → "));
        let last = chain[chain.len() - 1];
        self.line(&line);
        last
    }
}

/// How many steps each must wait for, one after the other.
fn depths(plan: &Plan) -> Vec<u32> {
    let steps = plan.steps();
    let mut depths = vec![0u32; steps.len()];
    let mut open: Vec<usize> = steps.iter().map(|step| step.needs.len()).collect();
    let mut ready: Vec<usize> = (0..steps.len()).filter(|&step| open[step] == 0).collect();
    while let Some(step) = ready.pop() {
        for &next in &steps[step].needed_by {
            let next = next as usize;
            depths[next] = depths[next].max(depths[step] + 1);
            open[next] -= 1;
            if open[next] == 0 {
                ready.push(next);
            }
        }
    }
    depths
}

/// `a, b, c and 7 more`
fn few(names: &[&str], most: usize) -> String {
    match names.len().checked_sub(most) {
        None | Some(0) => names.join(", "),
        Some(more) => format!("{} and {more} more", names[..most].join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use steadfast_core::plan::{Action, PlanDraft, StepDraft};
    use steadfast_core::policy::Policy;

    use super::*;

    fn drawn(steps: &[(&str, &[&str])]) -> String {
        let steps = steps.iter().map(|(name, needs)| {
            let mut step = StepDraft::new(name, Action::Run("true".into()), Policy::default());
            step.needs = needs.iter().map(ToString::to_string).collect();
            step
        });
        let plan = Plan::new(PlanDraft::new("j", steps.collect())).expect("valid");
        graph(&plan).unwrap_or_default()
    }

    #[test]
    fn a_chain_is_a_line_and_a_diamond_closes() {
        assert_eq!(drawn(&[("a", &[]), ("b", &[])]), "");
        assert_eq!(drawn(&[("a", &[]), ("b", &["a"]), ("c", &["b"])]), "a → b → c\n");
        let diamond: [(&str, &[&str]); 4] =
            [("a", &[]), ("b", &["a"]), ("c", &["a"]), ("d", &["b", "c"])];
        assert_eq!(drawn(&diamond), "a\n├─ b\n└─ c → d (and after b)\n");
        let forest: [(&str, &[&str]); 7] = [
            ("a", &[]),
            ("b", &["a"]),
            ("c", &["a"]),
            ("x", &["c"]),
            ("y", &["c"]),
            ("z", &["c"]),
            ("alone", &[]),
        ];
        assert_eq!(drawn(&forest), "a\n├─ b\n└─ c\n   └─ x, y, z\nalone\n");
    }

    #[test]
    fn a_thousand_steps_are_cut_and_counted() {
        let names: Vec<String> = (0..1000).map(|n| format!("s{n}")).collect();
        let first: &[&str] = &["s0"];
        let wide: Vec<(&str, &[&str])> = names
            .iter()
            .map(|name| (&**name, if name == "s0" { &[][..] } else { first }))
            .collect();
        let names_of = "s1, s2, s3, s4, s5, s6, s7, s8";
        assert_eq!(drawn(&wide), format!("s0\n└─ {names_of} and 991 more\n"));
        let before: Vec<[&str; 1]> = names.iter().map(|name| [&**name]).collect();
        let long: Vec<(&str, &[&str])> = names
            .iter()
            .enumerate()
            .map(|(n, name)| (&**name, if n == 0 { &[][..] } else { &before[n - 1][..] }))
            .collect();
        assert_eq!(drawn(&long), "s0 → s1 → s2 → s3 → s4 → s5 → s6 → … 992 more → s999\n");
        // Every second step has a sibling: a line each.
        let comb: Vec<(&str, &[&str])> = (names.iter().enumerate())
            .map(|(n, name)| (&**name, if n < 2 { &[][..] } else { &before[(n - 2) / 2 * 2][..] }))
            .collect();
        let text = drawn(&comb);
        assert!(text.lines().count() <= LINES + 1, "{text}");
        assert!(text.ends_with("more steps\n"), "{text}");
    }
}
