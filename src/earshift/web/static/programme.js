// @ts-check
/* How the programme goes in a period: a table for everybody and each group, and as a file. */

import { at, get } from "./api.js";
import { byId, fill, t } from "./dom.js";
import { percent } from "./format.js";
import { complain, formOf, inputOf, onSubmit, typed } from "./page.js";
import { table } from "./table.js";

/** What is asked for, as the form says. */
function asked() {
  const fields = new FormData(formOf("period"));
  const wanted = ["first", "last", "by"].map((name) => [name, typed(fields, name)]);
  return Object.fromEntries(wanted.filter(([, value]) => value !== ""));
}

/**
 * @param {ProgrammeGroup} group
 * @param {string} name
 * @param {boolean} whole whether it is everybody: of a few people an interval says nothing
 */
function row(group, name, whole = false) {
  /**
   * So many, and what part of those tested that is.
   * @param {number} n
   * @param {number[] | null | undefined} share
   */
  const counted = (n, share) => {
    const [p, low, high] = (share ?? []).map(percent);
    return !share ? n : t(whole ? "programme.share" : "programme.part", { n, p, low, high });
  };
  return [
    name, group.people, group.due, group.overdue, group.tested, group.audiograms,
    counted(group.confirmed, group.confirmed_share),
    counted(group.not_confirmed, group.not_confirmed_share),
    counted(group.waiting, group.waiting_share),
    counted(group.closed, group.closed_share),
    group.letters, group.protectors, group.trainings, group.referrals,
  ];
}

async function show() {
  const found = await get(at("/api/programme", {}, asked()));
  inputOf("first").value = found.first;
  inputOf("last").value = found.last;
  const columns = [
    found.by === "job" ? t("person.job") : t("person.department"),
    t("programme.people"), t("programme.due"), t("programme.overdue"), t("programme.tested"),
    t("programme.audiograms"), t("programme.confirmed"), t("programme.not_confirmed"),
    t("programme.waiting"), t("programme.closed"), t("programme.letters"),
    t("programme.protectors"), t("programme.trainings"), t("programme.referrals"),
  ];
  const rows = found.groups.map((group) => row(group, group.name ?? t("programme.nameless")));
  const caption = t("programme.caption", { first: found.first, last: found.last });
  const all = row(found.everybody, t("programme.everybody"), true);
  fill(byId("programme"), table(caption, columns, [...rows, all], { class: "programme labelled" }));
  const query = new URLSearchParams(asked());
  byId("csv", HTMLAnchorElement).href = `/api/programme.csv?${query}`;
}

onSubmit(formOf("period"), show);
show().catch(complain);
