-- Tests health.lua with the objects of the API, and that argocd-cm.yaml has the same script.
-- Run: lua5.4 manifests/gitops/health-test.lua
local directory = arg[0]:match("^(.*)/[^/]*$") or "."
local failures = 0

local function read(name)
  local file = assert(io.open(directory .. "/" .. name))
  local text = file:read("a")
  file:close()
  return text
end

local script = read("health.lua")

local function check(name, expected, object)
  object.metadata = object.metadata or {generation = 1}
  local health = assert(load(script, "health.lua", "t", {obj = object, ipairs = ipairs}))()
  if health.status ~= expected then
    failures = failures + 1
    print(name .. ": got " .. tostring(health.status) .. ", expected " .. expected)
  end
end

local function with(kind, ready, reason, more)
  local object = {kind = kind, spec = {}, status = {observedGeneration = 1, conditions = {
    {type = "Ready", status = ready, reason = reason, message = "message"},
  }}}
  for field, value in pairs(more or {}) do object[field] = value end
  return object
end

check("new object", "Progressing", {kind = "Resource", spec = {}})
check("running", "Healthy", with("Resource", "True", "Running"))
check("starting", "Progressing", with("Resource", "False", "Starting"))
check("older generation", "Progressing", with("Resource", "True", "Running", {metadata = {generation = 2}}))
check("deleted", "Progressing", with("Resource", "True", "Running", {metadata = {generation = 1, deletionTimestamp = "now"}}))
check("conflict", "Degraded", with("AffinityRule", "False", "RuleConflict"))
check("stopping", "Suspended", with("Resource", "False", "Stopping", {spec = {state = "Stopped"}}))
check("failed commit", "Degraded", with("GitSync", "False", "CommitRefused"))
check("no status of conditions", "Progressing", {kind = "Group", status = {}})
local broken = with("Resource", "False", "PoliciesExhausted")
broken.status.state = "Error"
check("error", "Degraded", broken)
local stalled = with("Resource", "False", "Unschedulable")
table.insert(stalled.status.conditions, {type = "Stalled", status = "True", message = "no node"})
check("stalled", "Degraded", stalled)

local embedded = read("argocd-cm.yaml"):match("health.lua: |\n(.*)$"):gsub("        ([^\n]*)", "%1")
if embedded ~= script then
  failures = failures + 1
  print("argocd-cm.yaml: the script differs from health.lua")
end
if failures > 0 then os.exit(1) end
print("health.lua: every check passed")
