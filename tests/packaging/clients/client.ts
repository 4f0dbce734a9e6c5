// One release read at its coordinator, asked at a learner, and looked up at a member's agent, in types made from docs/openapi.
import createClient from "openapi-fetch";
import type { paths as Coordinator } from "./coordinator.js";
import type { paths as Learner } from "./learner.js";
import type { paths as Agent } from "./party-agent.js";

declare const process: { argv: string[] };
const [, , coordinatorUrl, learnerUrl, agentUrl, token] = process.argv;

const coordinator = createClient<Coordinator>({ baseUrl: coordinatorUrl });
const learner = createClient<Learner>({ baseUrl: learnerUrl });
const agent = createClient<Agent>({ baseUrl: agentUrl, headers: { Authorization: `Bearer ${token}` } });

const releases = await coordinator.GET("/v1/releases");
const release = releases.data?.items[0];
if (release === undefined) throw new Error(releases.error?.detail);

const fit = await learner.POST("/v1/releases/{release}/fits", {
  params: { path: { release: release.id } },
  body: { target: "stay", features: ["age"] },
});
if (fit.data === undefined) throw new Error(fit.error.detail);

const unknown = await learner.POST("/v1/releases/{release}/fits", {
  params: { path: { release: release.id } },
  body: { target: "nobody" },
});

const proposal = await agent.GET("/v1/proposals/{release}", { params: { path: { release: release.id } } });
if (proposal.data === undefined) throw new Error(proposal.error.detail);

console.log(
  JSON.stringify({
    release: release.id,
    coefficients: fit.data.coefficients,
    remedy: unknown.error?.remedy,
    state: proposal.data.state,
  }),
);
