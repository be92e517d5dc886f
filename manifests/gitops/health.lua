-- Health of hactl objects for Argo CD, from the conditions that kstatus reads. docs/tasks/use-gitops.md describes its use.
-- Argo CD calls this script with the global variable obj, and reads the returned table.
local status = obj.status or {}
local observed = status.observedGeneration
if obj.metadata.deletionTimestamp ~= nil then
  return {status = "Progressing", message = "Waiting for the service to be removed"}
end
if observed ~= nil and obj.metadata.generation ~= nil and observed < obj.metadata.generation then
  return {status = "Progressing", message = "Waiting for the leader to process the object"}
end
local ready
for _, condition in ipairs(status.conditions or {}) do
  if condition.type == "Stalled" and condition.status == "True" then
    return {status = "Degraded", message = condition.message}
  end
  if condition.type == "Ready" then
    ready = condition
  end
end
if ready == nil then
  return {status = "Progressing", message = "Waiting for the leader to process the object"}
end
if ready.status == "True" then
  return {status = "Healthy", message = ready.message}
end
-- States of a Resource that only an operator ends.
if status.state == "Error" or ready.reason == "Invalid" or ready.reason == "RuleConflict" then
  return {status = "Degraded", message = ready.message}
end
if obj.spec and (obj.spec.state == "Stopped" or obj.spec.state == "Disabled" or obj.spec.state == "Ignored") then
  return {status = "Suspended", message = ready.message}
end
if obj.kind == "GitSync" or obj.kind == "Node" then
  return {status = "Degraded", message = ready.message}
end
return {status = "Progressing", message = ready.message}
