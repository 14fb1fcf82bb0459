// Checks objects of operators against the schemas that their custom resource definitions publish, as
// npm packages carry them: `node crds.mjs FOLDER < objects.json`. FOLDER holds node_modules.
// Prints a line for each object that its operator would refuse, and exits with 1 then.
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const MODULES = {
  ExternalSecret: "external-secrets/external-secrets.io/v1",
  PrometheusRule: "prometheus-operator/monitoring.coreos.com/v1",
  ScaledObject: "keda/keda.sh/v1alpha1",
  ServiceMonitor: "prometheus-operator/monitoring.coreos.com/v1",
};

const folder = pathToFileURL(`${process.argv[2]}/node_modules/@kubernetes-models/`);
for (const object of JSON.parse(readFileSync(0, "utf-8"))) {
  const { kind, apiVersion } = object;
  const module = await import(new URL(`${MODULES[kind]}/${kind}.js`, folder));
  try {
    if (!MODULES[kind].endsWith(apiVersion)) throw new Error(`apiVersion ${apiVersion}`);
    new module[kind](object).validate();
  } catch (error) {
    console.log(`${kind}: ${error.message}`);
    process.exitCode = 1;
  }
}
