/**
 * The engine's verbs, limited to what the principal of the caller reaches. Every API calls these, so the
 * same call gets the same verdict by every way in.
 *
 * What an id names is read before it is changed. Between the two it cannot leave the scopes: a job's
 * submitter, type and stream never change. An id outside of the scopes is answered like one that does not
 * exist.
 */
import type { Principal } from '../../domain/access/principal.ts';
import {
  matches,
  reachesAll,
  reachesAllJobs,
  reachesJob,
  type ScopeKind,
} from '../../domain/access/scopes.ts';
import { DomainError, jobNotFound, leaseNotFound } from '../../domain/errors.ts';
import type { Caller } from '../context/engine-context.ts';
import type { Verbs } from '../engine.ts';
import type { Draft } from '../jobs/submitter.ts';
import { denied, requireName, requireWorker } from './access-control.ts';
import type { Authenticator } from './authenticator.ts';
import { hideFirstJob } from './hide-first-job.ts';
import { shownEvents, shownJob, shownLease, shownResult } from './shown.ts';

const isUnlimited = ({ kind }: Principal): boolean => kind === 'local' || kind === 'system';

/** An operator, an observer or an administrator reads all leases of its scopes; a worker only its own. */
const readsOwnOnly = ({ roles }: Principal): boolean => roles.every((role) => role === 'worker');

/** A worker acts under the names of its key. A caller with a lease's token may use the lease, too. */
function requireActor(
  { principal }: Caller,
  workerId: string | null | undefined,
  token: string | null | undefined = null,
): void {
  if (isUnlimited(principal) || token != null) return;
  if (workerId == null) {
    if (!reachesAll(principal.workerIds)) throw denied('worker_id: must be named', 'worker_id');
    return;
  }
  requireWorker(principal, workerId, 'worker_id');
}

/** The only name that a scope reaches, if there is no other; it takes the place of a missing one. */
function nameWithin(
  principal: Principal,
  kind: ScopeKind,
  name: string | null | undefined,
  field: string,
): string | null {
  if (name != null) {
    requireName(principal, kind, name, field);
    return name;
  }
  const patterns = principal.scopes[kind];
  if (reachesAll(patterns)) return null;
  const [only, ...others] = patterns;
  if (only !== undefined && others.length === 0 && !only.endsWith('*')) return only;
  throw denied(`${field}: must be named, because the credential reaches only some`, field);
}

function requireDraft({ principal }: Caller, { addon_id, job_type, stream }: JobNames): void {
  requireName(principal, 'addon_ids', addon_id, 'addon_id');
  requireName(principal, 'job_types', job_type, 'job_type');
  if (stream !== null) requireName(principal, 'streams', stream, 'stream');
}

interface JobNames {
  addon_id: string;
  job_type: string;
  stream: string | null;
}

const namesOf = ({ addonId, jobType, stream }: Draft): JobNames => ({
  addon_id: addonId,
  job_type: jobType,
  stream,
});

export function guarded(verbs: Verbs, authenticator: Authenticator): Verbs {
  const { refusals } = authenticator;
  const { jobs, leases, files, capacity, stats, keys, quotas, queue, workers } = verbs;

  /** Throws as if the job did not exist, unless the scopes reach it. */
  const requireJob = async (jobId: string, caller: Caller): Promise<void> => {
    if (isUnlimited(caller.principal) || reachesAllJobs(caller.principal.scopes)) return;
    const { job } = await jobs.get(jobId, caller);
    if (!reachesJob(caller.principal.scopes, job)) throw jobNotFound(jobId);
  };

  const requiring = (caller: Caller) => (jobId: string) => requireJob(jobId, caller);

  const requireLease = async (leaseId: string, caller: Caller): Promise<void> => {
    const { principal } = caller;
    if (isUnlimited(principal)) return;
    const { lease, job } = await leases.get(leaseId, caller);
    const isOwn = !readsOwnOnly(principal) || matches(principal.workerIds, lease.workerId);
    if (!isOwn || !reachesJob(principal.scopes, job)) throw leaseNotFound(leaseId);
  };

  const requireEverything = ({ principal }: Caller, kinds: readonly ScopeKind[], what: string): void => {
    if (isUnlimited(principal) || kinds.every((kind) => reachesAll(principal.scopes[kind]))) return;
    throw denied(`${what} needs scopes that reach all ${kinds.join(', ')}`);
  };

  return {
    jobs: {
      ...jobs,
      async submit(one, caller) {
        if (isUnlimited(caller.principal)) return jobs.submit(one, caller);
        requireDraft(caller, namesOf(one));
        const submitted = await jobs.submit(one, caller).catch(async (error: unknown) => {
          throw error instanceof DomainError ? await hideFirstJob(error, requiring(caller)) : error;
        });
        const { jobId, createdAtMs } = submitted.job;
        const first = { jobId, createdAtMs, existing: submitted.existing };
        const shown = await hideFirstJob(first, requiring(caller));
        if (shown instanceof DomainError) throw shown;
        return submitted;
      },
      async submitMany(drafts, caller) {
        if (isUnlimited(caller.principal)) return jobs.submitMany(drafts, caller);
        const problems = drafts.map((one) => problemOf(() => requireDraft(caller, namesOf(one))));
        for (const problem of problems) refusals.note(caller, problem);
        const submitted = await jobs.submitMany(
          drafts.filter((_, i) => problems[i] === undefined),
          caller,
        );
        let next = 0;
        const shown = await Promise.all(submitted.map((one) => hideFirstJob(one, requiring(caller))));
        return problems.map((problem) => problem ?? (shown[next++] as (typeof shown)[number]));
      },
      async claim(command, caller) {
        requireActor(caller, command.worker_id);
        return jobs.claim(command, caller);
      },
      async updateStatus(jobId, command, caller) {
        requireActor(caller, command.worker_id);
        await requireJob(jobId, caller);
        return jobs.updateStatus(jobId, command, caller);
      },
      async cancel(jobId, command, caller) {
        await requireJob(jobId, caller);
        return jobs.cancel(jobId, command, caller);
      },
      async retry(jobId, command, caller) {
        await requireJob(jobId, caller);
        return jobs.retry(jobId, command, caller);
      },
      async retryDeadLetters(command, caller) {
        const { principal } = caller;
        if (isUnlimited(principal)) return jobs.retryDeadLetters(command, caller);
        const limited = {
          ...command,
          addon_id: nameWithin(principal, 'addon_ids', command.addon_id, 'addon_id'),
          job_type: nameWithin(principal, 'job_types', command.job_type, 'job_type'),
          stream: nameWithin(principal, 'streams', command.stream, 'stream'),
        };
        return jobs.retryDeadLetters(limited, caller);
      },
      async get(jobId, caller) {
        const found = await jobs.get(jobId, caller);
        if (isUnlimited(caller.principal)) return found;
        if (!reachesJob(caller.principal.scopes, found.job)) throw jobNotFound(jobId);
        return shownResult(caller.principal, found);
      },
      async list(command, caller) {
        const { principal } = caller;
        if (isUnlimited(principal)) return jobs.list(command, caller);
        const { addon_id, job_type, stream } = command;
        if (addon_id != null) requireName(principal, 'addon_ids', addon_id, 'addon_id');
        if (job_type != null) requireName(principal, 'job_types', job_type, 'job_type');
        if (stream != null) requireName(principal, 'streams', stream, 'stream');
        const page = await jobs.list(command, caller);
        return { ...page, items: page.items.map((job) => shownJob(principal, job)) };
      },
      async streams(command, caller) {
        requireEverything(caller, ['addon_ids', 'job_types', 'streams'], 'the depth of streams');
        return jobs.streams(command, caller);
      },
      async events(jobId, command, caller) {
        await requireJob(jobId, caller);
        const page = await jobs.events(jobId, command, caller);
        return { ...page, items: shownEvents(caller.principal, page.items) };
      },
      async *watch(jobId, afterEventId, caller) {
        await requireJob(jobId, caller);
        const { principal } = caller;
        for await (const page of jobs.watch(jobId, afterEventId, caller))
          yield { ...shownResult(principal, page), events: shownEvents(principal, page.events) };
      },
      async explain(jobId, caller) {
        await requireJob(jobId, caller);
        return jobs.explain(jobId, caller);
      },
    },
    leases: {
      ...leases,
      async request(command, caller) {
        requireActor(caller, command.worker_id);
        await requireJob(command.job_id, caller);
        return leases.request(command, caller);
      },
      async acquire(command, caller) {
        requireActor(caller, command.worker_id);
        if (!command.wait_ms) return leases.acquire(command, caller);
        return authenticator.whileInForce(caller, (followed) => leases.acquire(command, followed));
      },
      async heartbeat(heartbeat, caller) {
        requireActor(caller, heartbeat.workerId, heartbeat.token);
        return leases.heartbeat(heartbeat, caller);
      },
      async heartbeatWithJob(heartbeat, caller) {
        requireActor(caller, heartbeat.workerId, heartbeat.token);
        return leases.heartbeatWithJob(heartbeat, caller);
      },
      async release(release, caller) {
        requireActor(caller, release.workerId, release.token);
        return leases.release(release, caller);
      },
      async end(release, caller) {
        requireActor(caller, release.workerId, release.token);
        return leases.end(release, caller);
      },
      async findByToken(jobId, token, caller) {
        // A wrong token does not reveal whether there is a job outside of the scopes.
        return leases.findByToken(jobId, token, caller).catch(async (error: unknown) => {
          await requireJob(jobId, caller);
          throw error;
        });
      },
      async get(leaseId, caller) {
        const found = await leases.get(leaseId, caller);
        await requireLease(leaseId, caller);
        const { principal } = caller;
        return { ...found, lease: shownLease(principal, found.lease), job: shownJob(principal, found.job) };
      },
      async list(command, caller) {
        const page = await leases.list(command, caller);
        return { ...page, items: page.items.map((lease) => shownLease(caller.principal, lease)) };
      },
      async explain(leaseId, caller) {
        await requireLease(leaseId, caller);
        return leases.explain(leaseId, caller);
      },
    },
    files: {
      ...files,
      async acquire(request, caller) {
        if (!isUnlimited(caller.principal)) {
          requireName(caller.principal, 'repositories', request.repository, 'repository');
          requireWorker(caller.principal, request.ownerId, 'owner_id');
          requireWorker(caller.principal, request.callerId, 'caller_id');
          const { parentOwnerId } = request.profile;
          if (parentOwnerId !== null) requireWorker(caller.principal, parentOwnerId, 'owner.parent_owner_id');
        }
        return files.acquire(request, caller);
      },
      async release(release, caller) {
        requireActor(caller, release.ownerId);
        // The answer names the owners of files that are not released.
        if (!isUnlimited(caller.principal) && release.repository !== null)
          requireName(caller.principal, 'repositories', release.repository, 'repository');
        return files.release(release, caller);
      },
      async reportActivity(ownerId, caller) {
        requireActor(caller, ownerId);
        return files.reportActivity(ownerId, caller);
      },
      async stopOwner(ownerId, caller) {
        requireActor(caller, ownerId);
        return files.stopOwner(ownerId, caller);
      },
      async endOwner(ownerId, caller) {
        requireActor(caller, ownerId);
        return files.endOwner(ownerId, caller);
      },
      async heartbeat(ownerId, caller) {
        requireActor(caller, ownerId);
        return files.heartbeat(ownerId, caller);
      },
      async instruct(contentionId, command, caller) {
        requireEverything(caller, ['repositories'], 'an instruction');
        return files.instruct(contentionId, command, caller);
      },
      async list(command, caller) {
        return files.list(withRepository(command, caller), caller);
      },
      async blockers(command, caller) {
        return files.blockers(withRepository(command, caller), caller);
      },
      async *watch(command, caller) {
        yield* files.watch(withRepository(command, caller), caller);
      },
    },
    capacity,
    stats: {
      async snapshot(command, caller) {
        return stats.snapshot(withAddon(command, caller), caller);
      },
      async timeseries(command, caller) {
        return stats.timeseries(withAddon(command, caller), caller);
      },
      async *watch(command, caller) {
        yield* stats.watch(withAddon(command, caller), caller);
      },
    },
    keys,
    quotas,
    queue,
    workers,
  };
}

function withRepository<Command extends { repository?: string | null | undefined }>(
  command: Command,
  { principal }: Caller,
): Command {
  if (isUnlimited(principal)) return command;
  return { ...command, repository: nameWithin(principal, 'repositories', command.repository, 'repository') };
}

/** Figures are kept by submitter alone, so they need scopes that reach all its streams and types. */
function withAddon<Command extends { addon_id?: string | null | undefined }>(
  command: Command,
  { principal }: Caller,
): Command {
  if (isUnlimited(principal)) return command;
  const { streams, job_types } = principal.scopes;
  if (!reachesAll(streams) || !reachesAll(job_types))
    throw denied('figures need scopes that reach all streams, job_types');
  return { ...command, addon_id: nameWithin(principal, 'addon_ids', command.addon_id, 'addon_id') };
}

function problemOf(check: () => void): DomainError | undefined {
  try {
    check();
    return undefined;
  } catch (error) {
    if (error instanceof DomainError) return error;
    throw error;
  }
}
