/** What derives from the table of fields in `job.ts`: types, and lists of fields with their names. */
import { type Job, type Json, jobFields, type Priority } from './job.ts';
import type { State } from './state-machine.ts';

/** The form of a field's value in JSON. */
export type FieldKind = keyof JsonForms;

/** The types of the values in JSON. A time is ISO 8601. */
interface JsonForms {
  uuid: string;
  text: string;
  time: string;
  whole: number;
  count: number;
  share: number;
  flag: boolean;
  object: Record<string, unknown>;
  constraints: Record<string, unknown>;
  labels: string[];
  priority: Priority;
  state: Exclude<State, 'LEASED'>;
}

export interface JobField {
  property: keyof Job;
  kind: FieldKind;
  isNullable?: true;
  description: string;
  /** The value of a job that was just submitted. */
  example: Json;
  /** How a client sets the field; absent for fields that the server sets. */
  submission?: Submission;
}

export interface Submission {
  isRequired?: true;
  /** The description in requests, where it differs. */
  description?: string;
  /** The value where the field is omitted; null if absent. */
  default?: Json;
  /** Of a text: a name may not be blank. */
  form?: 'name' | 'key';
  /** Of a whole number. */
  minimum?: number;
  maximum?: number;
}

export type JobFieldName = keyof typeof jobFields;

/** The fields in their order, with their names. */
export const jobFieldList = (Object.entries(jobFields) as [JobFieldName, JobField][]).map(
  ([name, field]) => ({
    name,
    ...field,
  }),
);

type Fields = typeof jobFields;
type JsonFormOf<Name extends JobFieldName> = JsonForms[Fields[Name]['kind']];

/** A job in JSON, with the queue contract's field names. */
export type JobBody = {
  [Name in JobFieldName]: Fields[Name] extends { isNullable: true }
    ? JsonFormOf<Name> | null
    : JsonFormOf<Name>;
};

type SubmittedName = {
  [Name in JobFieldName]: Fields[Name] extends { submission: object } ? Name : never;
}[JobFieldName];
type RequiredName = {
  [Name in SubmittedName]: Fields[Name]['submission'] extends { isRequired: true } ? Name : never;
}[SubmittedName];

/** The fields that a client sets, in JSON. An omitted field and a null field mean the same. */
export type SubmissionBody = { [Name in RequiredName]: JsonFormOf<Name> } & {
  [Name in Exclude<SubmittedName, RequiredName>]?: JsonFormOf<Name> | null | undefined;
};

/** The same fields of a job. */
export type SubmittedFields = Pick<Job, Fields[SubmittedName]['property']>;

/** The fields that a client sets, with their names, in the order of the requests. */
export const submittedFieldList = jobFieldList.flatMap(({ submission, ...field }) =>
  submission ? [{ ...field, name: field.name as SubmittedName, submission }] : [],
);
