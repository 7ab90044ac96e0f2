import {
  ClaimJobs,
  ListJobEvents,
  ListJobs,
  OperatorRequest,
  SubmitJob,
  UpdateJobStatus,
} from './commands.ts';
import { parser } from './parse.ts';

/** The checkers of everything that may be asked, made once for all faces. */
export const parse = {
  submitJob: parser(SubmitJob),
  claimJobs: parser(ClaimJobs),
  updateJobStatus: parser(UpdateJobStatus),
  operatorRequest: parser(OperatorRequest),
  listJobs: parser(ListJobs),
  listJobEvents: parser(ListJobEvents),
};
