/* Names for the types of the API, which are generated from its OpenAPI description, and of the
   texts. The scripts use them in their JSDoc comments; nothing of this reaches a browser. */

import type { components, paths } from "../build/front/api";
import type english from "../src/earshift/web/texts/en.json";

type Schemas = components["schemas"];

/** The server sends every field, also those with a default. */
type Whole<T> = { [K in keyof T]-?: Whole<Exclude<T[K], undefined>> };

type Json<Response> = Response extends { content: { "application/json": infer Content } }
  ? Whole<Content>
  : null;

type Success<Responses> = Responses extends { 200: infer R }
  ? Json<R>
  : Responses extends { 201: infer R }
    ? Json<R>
    : null;

declare global {
  type Path = keyof paths;
  type Method = "get" | "post" | "delete";
  type PathOf<M extends Method> = {
    [P in Path]: paths[P] extends Record<M, object> ? P : never;
  }[Path];

  /** An address whose placeholders are filled in; it remembers the path it came from. */
  type Address<P extends Path> = string & { readonly path: P };

  type Answered<P extends Path, M extends Method> = paths[P] extends Record<
    M,
    { responses: infer Responses }
  >
    ? Success<Responses>
    : never;

  type Sent<P extends Path, M extends Method> = paths[P] extends Record<
    M,
    { requestBody: { content: { "application/json": infer Content } } }
  >
    ? Content
    : Record<string, never>;

  type Ear = "right" | "left";
  type TextKey = keyof typeof english;
  type TextValues = Record<string, unknown>;

  type Person = Whole<Schemas["Person"]>;
  type PersonFile = Whole<Schemas["PersonFile"]>;
  type ExamSummary = Whole<Schemas["ExamSummary"]>;
  type HistoryPoint = Whole<Schemas["HistoryPoint"]>;
  type Note = Whole<Schemas["NoteShown"]>;
  type ShownSession = Whole<Schemas["ShownSession"]>;
  type Device = Whole<Schemas["Device"]>;
  type GuidedStep = Whole<Schemas["GuidedStep"]>;
  type Checks = Whole<Schemas["Checks"]>;
  type PlayableRange = Whole<Schemas["PlayableRange"]>;
  type Fingerprint = Schemas["Fingerprint"];
  type Rule = Whole<Schemas["RuleShown"]>;
  type Retspl = Whole<Schemas["RetsplShown"]>;
  type Worklist = Whole<Schemas["Worklist"]>;
  type WorkItem = Whole<Schemas["WorkItem"]>;
  type ReviewShown = Whole<Schemas["ReviewShown"]>;
  type VisitReview = Whole<Schemas["VisitReview"]>;
  type FindingShown = Whole<Schemas["FindingShown"]>;
  type SignatureShown = Whole<Schemas["SignatureShown"]>;
  type FollowUpShown = Whole<Schemas["FollowUpShown"]>;
  type NoiseShown = Whole<Schemas["NoiseShown"]>;
  type SiteSetting = Whole<Schemas["SiteSetting"]>;
  type ProgrammeGroup = Whole<Schemas["ProgrammeGroup"]>;
  type User = Whole<Schemas["KnownUser"]>;
  type Exam = Whole<Schemas["Exam"]>;
  type Play = Whole<Schemas["Play"]>;
  type Sound = Whole<Schemas["SoundShown"]>;
  type Timing = Play["timing"];
  type Presentation = Whole<Schemas["PresentationShown"]>;
  type Live = Whole<Schemas["Live"]>;
  type Threshold = Whole<Schemas["ThresholdShown"]>;
  type Trial = Whole<Schemas["TrialShown"]>;
  type Checklist = Schemas["Checklist"];
  type NewTest = Schemas["NewTest"];
  type GivenAnswer = Schemas["GivenAnswer"];
  type Pressed = Schemas["Pressed"];
  type Stopped = Schemas["Stopped"];
  type StopReason = Stopped["reason"];
}
