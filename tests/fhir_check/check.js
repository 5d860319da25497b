// Validates FHIR R4 files against the structure and the required value sets, and prints what is
// wrong as JSON: {file: [message, ...]}. Value sets that the package does not hold are only a
// remark of its own and are left out.
const fs = require("fs");
const { Fhir } = require("fhir");

const fhir = new Fhir();
const found = {};
for (const file of process.argv.slice(2)) {
  const resource = JSON.parse(fs.readFileSync(file, "utf-8"));
  const { messages } = fhir.validate(resource, { errorOnUnexpected: true });
  found[file] = messages
    .filter((message) => message.severity === "error" || message.severity === "fatal")
    .map((message) => `${message.resourceId || ""} ${message.location}: ${message.message}`);
}
console.log(JSON.stringify(found));
