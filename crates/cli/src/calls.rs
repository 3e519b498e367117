//! Web services that this process calls for its job, and the port on which they call back.
//!
//! A call needs no thread and no folder: it is a task, and as many go on at once as there are slots.

use std::collections::{BTreeMap, HashMap};
use std::net::{Ipv4Addr, TcpListener};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use steadfast_core::decide::Input;
use steadfast_core::event::{ItemId, JobId};
use steadfast_core::outcome::Outcome;
use steadfast_core::plan::{Action, Http, HttpMode, Plan, Step};
use steadfast_engine::{Assignment, Inbox, Work};
use steadfast_server::callbacks::{CallbackHandler, CallbackTokens, CallbackUrls, Secrets};
use steadfast_server::queries::JobReader;
use steadfast_worker::http::{Called, Caller, HttpOrder, Outbound};
use steadfast_worker::{LONGEST_WAIT, OUTPUT_CAP};
use tokio::runtime::{Handle, Runtime};
use tokio::sync::{Semaphore, oneshot};
use tokio::task::{AbortHandle, JoinHandle};

use crate::clock;
use crate::data::Data;

/// How long the answer to a callback may take to be written, once there is nothing else to do.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Made before the engine is: nothing is called before it can call back.
#[derive(Debug)]
pub(crate) struct HttpExecutor {
    runtime: Runtime,
    caller: Caller,
    turns: Arc<Semaphore>,
    callbacks: Option<Callbacks>,
}

#[derive(Debug)]
struct Callbacks {
    listener: TcpListener,
    callback_tokens: CallbackTokens,
    reader: JobReader,
    addresses: CallbackUrls,
}

impl HttpExecutor {
    /// None: nothing of the plan calls a service.
    pub(crate) fn open(
        plan: &Plan,
        job: &str,
        slots: u32,
        outbound: &Outbound,
        data: &Data,
    ) -> Result<Option<Self>, String> {
        let actions = plan.steps().iter().flat_map(Step::actions);
        let modes = actions.filter_map(|action| match action {
            Action::Http(http) => Some(http.mode),
            _ => None,
        });
        let modes: Vec<HttpMode> = modes.collect();
        if modes.is_empty() {
            return Ok(None);
        }
        // One alone has the other cores wait for it while it is busy with what has arrived.
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("calls")
            .enable_all()
            .build()
            .map_err(|error| format!("cannot start threads for calls: {error}"))?;
        steadfast_server::tls::use_ring();
        let caller = Caller::new(outbound).map_err(|error| error.to_string())?;
        let callbacks = modes.contains(&HttpMode::Async).then(|| Callbacks::open(job, data));
        let turns = Arc::new(Semaphore::new(slots as usize));
        Ok(Some(Self { runtime, caller, turns, callbacks: callbacks.transpose()? }))
    }

    /// From now on services are called, and may call back.
    pub(crate) fn staff(self, inbox: Inbox) -> Calls {
        let Self { runtime, caller, turns, callbacks } = self;
        let mut door = None;
        let addresses = callbacks.map(|callbacks| {
            let Callbacks { listener, callback_tokens, reader, addresses } = callbacks;
            let (secrets, cap) = (Secrets::default(), OUTPUT_CAP as usize);
            let callbacks = CallbackHandler::new(
                callback_tokens,
                secrets,
                inbox.clone(),
                reader,
                cap,
                Arc::new(clock::now),
            );
            let (close, closed) = oneshot::channel::<()>();
            let closing = async move { drop(closed.await) };
            let served = steadfast_server::http::serve_callbacks(listener, callbacks, closing);
            door = Some(CallbackServer { close, served: runtime.spawn(served) });
            addresses
        });
        let shared = Shared { caller, turns, addresses, inbox, state: Mutex::default() };
        let tasks = runtime.handle().clone();
        let open = Arc::new(Mutex::new(Some(Open { runtime, door })));
        Calls { tasks, open, shared: Arc::new(shared) }
    }
}

impl Callbacks {
    fn open(job: &str, data: &Data) -> Result<Self, String> {
        let wrong = |error: std::io::Error| format!("cannot listen for callbacks: {error}");
        // The port that the job had before, if it is resumed: services know no other.
        let before = data.callback_port(job);
        let known = before.and_then(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).ok());
        if let (Some(port), None) = (before, &known) {
            anstream::eprintln!(
                "port {port} is taken: services that were called before the interruption cannot call \
                 back, and their attempts will time out"
            );
        }
        let any = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
        let listener = known.map_or_else(any, Ok).map_err(wrong)?;
        listener.set_nonblocking(true).map_err(wrong)?;
        let address = listener.local_addr().map_err(wrong)?;
        data.keep_callback_port(job, address.port()).map_err(wrong)?;
        let callback_tokens =
            CallbackTokens::open(&*data.folder.storage().settings()).map_err(wrong)?;
        let addresses = CallbackUrls::new(callback_tokens.clone(), &format!("http://{address}"));
        let reader =
            JobReader::open(data.folder.storage(), 1).map_err(|error| error.to_string())?;
        Ok(Self { listener, callback_tokens, reader, addresses })
    }
}

/// Cheap to clone: all are the same.
#[derive(Clone, Debug)]
pub(crate) struct Calls {
    tasks: Handle,
    /// Until there is nothing more to call.
    open: Arc<Mutex<Option<Open>>>,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Open {
    runtime: Runtime,
    door: Option<CallbackServer>,
}

/// Through which callbacks come.
#[derive(Debug)]
struct CallbackServer {
    close: oneshot::Sender<()>,
    served: JoinHandle<()>,
}

#[derive(Debug)]
struct Shared {
    caller: Caller,
    turns: Arc<Semaphore>,
    addresses: Option<CallbackUrls>,
    inbox: Inbox,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// By the tokens of attempts: a process runs one job.
    under_way: HashMap<u64, UnderWay>,
    /// Nothing begins any more.
    stopped: bool,
}

#[derive(Debug)]
struct UnderWay {
    job: JobId,
    item: ItemId,
    task: AbortHandle,
    /// It has had its turn: the service may know of it.
    begun: bool,
}

impl Calls {
    pub(crate) fn assign(&self, work: Box<Work>, http: Http) {
        let Assignment { job, item, token, .. } = work.assignment.clone();
        let mut state = self.shared.held();
        if state.stopped {
            drop(state);
            return self.shared.report(&job, item, token, Called::Ended(Outcome::NOT_BEGUN));
        }
        let shared = self.shared.clone();
        // It cannot end before it is among those under way: that needs the lock we hold.
        let task = self.tasks.spawn(async move {
            let called = shared.call(&work, &http).await;
            // Whoever has taken it out has spoken for it.
            let it = shared.held().under_way.remove(&token);
            if let Some(it) = it {
                shared.report(&it.job, item, token, called);
            }
        });
        let it = UnderWay { job, item, task: task.abort_handle(), begun: false };
        state.under_way.insert(token, it);
    }

    /// Nobody wants to hear of it any more. The service may go on with it.
    pub(crate) fn withdraw(&self, token: u64) {
        if let Some(it) = self.shared.held().under_way.remove(&token) {
            it.task.abort();
        }
    }

    /// Gives all of them up, also what is assigned from now on: the attempts of those that have begun are lost.
    pub(crate) fn stop_all(&self) {
        let mut state = self.shared.held();
        state.stopped = true;
        let given_up = std::mem::take(&mut state.under_way);
        drop(state);
        for (token, UnderWay { job, item, task, begun }) in given_up {
            task.abort();
            let lost = Outcome::Lost { started: begun, why: None };
            self.shared.report(&job, item, token, Called::Ended(lost));
        }
    }

    /// Nothing is called and no callback is taken any more. Who has ended the job by one still hears that
    /// it counted; nobody waits for a name that is still looked up.
    pub(crate) fn close(&self) {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(Open { runtime, door }) = open else { return };
        if let Some(CallbackServer { close, served }) = door {
            drop(close);
            let _ = runtime.block_on(async { tokio::time::timeout(LAST_WORDS, served).await });
        }
        runtime.shutdown_background();
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.shared.held().under_way.is_empty()
    }
}

impl Shared {
    fn held(&self) -> MutexGuard<'_, State> {
        // A task that panicked left a plain map behind, which is still right.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn call(&self, work: &Work, http: &Http) -> Called {
        // Mostly it is at once, and needs no watch over how long.
        let turn = match self.turns.try_acquire() {
            Ok(turn) => Some(turn),
            Err(_) => {
                let waited = tokio::time::timeout(LONGEST_WAIT, self.turns.acquire()).await;
                waited.ok().and_then(Result::ok)
            }
        };
        let Some(_turn) = turn else { return Called::Ended(Outcome::NOT_BEGUN) };
        let Assignment { job, item, attempt, token, .. } = &work.assignment;
        match self.held().under_way.get_mut(token) {
            Some(it) => it.begun = true,
            // It was given up at this very moment, and nobody listens.
            None => return Called::Ended(Outcome::NOT_BEGUN),
        }
        let is_async = http.mode == HttpMode::Async;
        let callback_url =
            self.addresses.as_ref().filter(|_| is_async).map(|to| to.of(&work.assignment));
        let secrets = work.secrets.iter();
        let secrets: BTreeMap<String, String> =
            secrets.filter_map(|name| Some((name.clone(), std::env::var(name).ok()?))).collect();
        let order = HttpOrder {
            http,
            job_id: job,
            step: &work.step,
            item: *item,
            datacenter: work.datacenter.as_deref(),
            attempt: *attempt,
            callback_url: callback_url.as_deref(),
            timeout: work.timeout_ms.map(Duration::from_millis),
            secrets: &secrets,
        };
        self.caller.call(&order).await
    }

    fn report(&self, job: &JobId, item: ItemId, token: u64, called: Called) {
        let input = match called {
            Called::Ended(outcome) => {
                let outcome = outcome.within(OUTPUT_CAP as usize);
                Input::Report { item, token, outcome }
            }
            Called::AwaitsCallback => Input::Awaits { item, token },
        };
        self.inbox.report(job, input);
    }
}
