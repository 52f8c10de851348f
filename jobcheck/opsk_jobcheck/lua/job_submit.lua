-- job_submit.lua of opsk: leaves the memory verdict in the record of each training job, and never stands in the way.
--
-- slurmctld runs this under its locks, one submission at a time. So: jobs that cannot be training jobs are told apart
-- here, without a question; for the others one question is asked on a local Unix socket, the whole of which may last
-- submit_deadline_ms; after a few failures in a row nothing is asked for a while. Whatever happens, the job is accepted
-- as it came, with at most one text added: admin_comment. Only with policy = enforce in the settings, and only when the
-- advisor says so in time and in so many words, is a job held (its user can release it) or refused.
--
-- Install: beside slurm.conf, with JobSubmitPlugins=lua. Copy it under another name and rename it, after luac -p:
-- slurmctld does not start with a broken one, and reloads it only when its time stamp is newer.
-- Settings: opsk-hooks.conf beside this file or in /etc/opsk, lines of name = value.
-- `opsk advisor --install-hooks DIRECTORY` writes both hooks and the settings of this site.
-- Beside a script of your own:  local ok, opsk = pcall(function()
--                                 return assert(loadfile("/etc/slurm/opsk_job_submit.lua"))("library") end)
-- and at the end of your slurm_job_submit:  return ok and opsk.submit(job_desc, part_list, submit_uid) or slurm.SUCCESS
-- Runs on Lua 5.1 to 5.4.

local HERE = debug.getinfo(1, "S").source:match("^@(.*/)") or "./"

--@ shared/words.lua

--@ shared/asking.lua

--@ shared/hearing.lua

local MAX_COMMENT = 1024
-- Longer than any launch script; what is searched and encoded here is paid for by every submission that waits.
local MAX_ASKED = 262144
local MAX_LINES = 2
local MAX_REASONS = 4
local JOB_FIELDS = { "min_nodes", "max_nodes", "num_tasks", "ntasks_per_node", "cpus_per_task", "tres_per_node",
  "tres_per_job", "tres_per_task", "tres_per_socket", "sockets_per_node", "gres", "shared", "partition", "features",
  "account", "qos", "time_limit", "array_inx", "het_job_offset" }
local GPU_FIELDS = { "tres_per_node", "tres_per_job", "tres_per_task", "tres_per_socket", "gres" }

local breaker = { failures = 0, open_until = 0, pause_s = SETTINGS.breaker_pause_s }

-- Looked for once, and again only where it was missing and a question is asked: an open breaker costs a clock's reading.
local core = library("socket.core")
local function now()
  return core and core.gettime() or os.time()
end

local function breaker_is_open()
  local ahead = breaker.open_until - now()
  return ahead > 0 and ahead <= 60
end

local function count_failure(why)
  breaker.failures = breaker.failures + 1
  if breaker.failures < SETTINGS.breaker_failures then return end
  breaker.open_until = now() + breaker.pause_s
  slurm.log_info("%s", string.format("opsk: the advisor gives no answer (%s): not asked for %d s",
    harmless(tostring(why), 200), math.ceil(breaker.pause_s)))
  breaker.pause_s = math.min(breaker.pause_s * 2, 60)
end

local function count_success()
  breaker.failures, breaker.open_until, breaker.pause_s = 0, 0, SETTINGS.breaker_pause_s
end

local function asks_for_gpus(job_desc)
  if SETTINGS.gpus_implied == "yes" or job_desc.shared == 0 then return true end
  for _, name in ipairs(GPU_FIELDS) do
    local text = job_desc[name]
    if type(text) == "string" and text:find("gpu", 1, true) then return true end
  end
  return false
end

local function arguments(job_desc)
  local found, size = {}, 0
  local list, count = job_desc.argv, tonumber(job_desc.argc) or 0
  if not list then return found, "" end
  for index = 0, math.min(count, 4096) - 1 do
    local word = list[index]
    if type(word) ~= "string" then break end
    size = size + #word
    if size > MAX_SEARCHED then break end
    found[#found + 1] = word
  end
  return found, table.concat(found, " ")
end

-- Does a shell read a script here, or is a file run that may be one? The advisor knows what cli_filter read in it.
local SHELLS = { sh = true, bash = true, dash = true, zsh = true, ksh = true }
local function may_run_a_script(argv)
  local first = argv[1]:match("[^/]*$")
  if not SHELLS[first] then return argv[1]:find("/", 1, true) or first:find("%.%a*sh$") end
  local at = 2
  while argv[at] and argv[at]:find("^%-") and argv[at] ~= "-c" do at = at + 1 end
  return argv[at] and argv[at] ~= "-c"
end

-- Later components of a heterogeneous job have no script; NO_VAL is a job with one component.
local function is_later_component(job_desc)
  local offset = job_desc.het_job_offset
  return type(offset) == "number" and offset > 0 and offset < 65534
end

-- Of what was typed after salloc and srun, 22.05 shows nothing and one word: the advisor may know the rest. Newer
-- releases show all words.
local function worth_a_question(script, argv, words)
  if script then
    if #script > MAX_ASKED or not looks_like_training(script) then return false end
    return SETTINGS.policy == "enforce" or not opted_out(script)
  end
  return #argv <= 1 or looks_like_training(words) or may_run_a_script(argv)
end

-- What Slurm fills in later for those who name none: a policy goes by it.
local function add_defaults(job, job_desc, part_list)
  job.account = job.account or job_desc.default_account
  job.qos = job.qos or job_desc.default_qos
  if job.partition or type(part_list) ~= "table" then return end
  for name, part in pairs(part_list) do
    if tonumber(part.flag_default) == 1 then job.partition = name end
  end
end

local function question(job_desc, part_list, submit_uid, script, argv)
  local job = {}
  for _, name in ipairs(JOB_FIELDS) do
    local value = job_desc[name]
    if type(value) == "string" or type(value) == "number" then job[name] = value end
  end
  -- slurmctld leaves the offset of a crontab's jobs at 0, which elsewhere is the first of several components.
  if job_desc.cron_job == true then job.cron_job, job.het_job_offset = true, nil end
  if SETTINGS.policy ~= "none" then pcall(add_defaults, job, job_desc, part_list) end
  local environment = script and job_desc.environment
  local inside = environment and environment.SLURM_JOB_ID ~= nil
  local off = environment and environment.OPSK_ADVICE == "off"
  local env
  if environment and SETTINGS.policy == "enforce" then
    env = mentioned_variables(script, function(name) return environment[name] end)
    env = next(env) and env or EMPTY_OBJECT
  end
  return json({ v = VERSION, kind = "submit", as_text = true, uid = tonumber(job_desc.user_id) or submit_uid,
    script = script, argv = argv, job = next(job) and job or EMPTY_OBJECT, env = env,
    ascii = environment and ascii_only(function(name) return environment[name] end) or nil,
    quiet = (inside or off or SETTINGS.submit_lines == "never") and true or false })
end

-- The deadline holds for all that this hook does, from its start on. It waits for less, so that waking up late, or taking
-- an answer apart, keeps within it.
local SHARE_OF_DEADLINE = 0.75

local function ask(body, began)
  local talk, why = converse(SETTINGS.submit_deadline_ms / 1000 * SHARE_OF_DEADLINE, began)
  if not talk then return nil, why end
  core = core or library("socket.core")
  local fine, answer = pcall(function()
    talk.connect()
    talk.say(body)
    return hear(talk)
  end)
  talk.close()
  if fine then return answer end
  return nil, answer
end

local function add_comment(job_desc, comment)
  if not comment or comment == "" then return end
  comment = harmless(comment, MAX_COMMENT):gsub("[\128-\255]", "?")
  if comment:sub(1, 5) ~= "opsk:" then comment = "opsk: " .. comment end
  local before = job_desc.admin_comment
  if type(before) ~= "string" or before == "" then
    job_desc.admin_comment = comment
  elseif not before:find("opsk:", 1, true) then
    job_desc.admin_comment = before .. " " .. comment
  end
end

local function tell(lines, most)
  for _, line in ipairs(texts(lines, most, 300)) do slurm.log_user("%s", "opsk  " .. line) end
end

-- What the site's policy wants of a job that is certain to run out of memory. Says why first: a job that nobody can be
-- told about is accepted. Priority 0 is a user's hold, set before slurmctld looks who asked: its user can release it.
local function enforce(job_desc, answer)
  if #answer.line == 0 then return end
  local action = answer.action[1]
  tell(answer.line, MAX_REASONS)
  slurm.log_info("%s", string.format("opsk: policy: %s of a job of uid %d", action, tonumber(job_desc.user_id) or -1))
  if action == "reject" then return slurm.ERROR end
  job_desc.priority = 0
end

-- Returns slurm.ERROR for a job that is to be refused; nothing for every other.
local function submit(job_desc, part_list, submit_uid)
  if not asks_for_gpus(job_desc) then return end
  if is_later_component(job_desc) or breaker_is_open() then return end
  local began = core and core.gettime()
  local script = job_desc.script
  local argv, words = arguments(job_desc)
  if not worth_a_question(script, argv, words) then return end
  local answer, why = ask(question(job_desc, part_list, submit_uid, script, argv), began)
  if not answer then return count_failure(why) end
  count_success()
  if answer.status ~= "advice" then return end
  add_comment(job_desc, answer.comment[1])
  local action = answer.action[1]
  if SETTINGS.policy == "enforce" and script and (action == "hold" or action == "reject") then
    return enforce(job_desc, answer)
  end
  if SETTINGS.submit_lines ~= "never" then tell(answer.line, MAX_LINES) end
end

local opsk = {}
function opsk.submit(job_desc, part_list, submit_uid)
  local fine, refused = pcall(submit, job_desc, part_list, submit_uid)
  if fine and refused == slurm.ERROR then return slurm.ERROR end
  return slurm.SUCCESS
end

if (...) == "library" then return opsk end

function slurm_job_submit(job_desc, part_list, submit_uid)
  return opsk.submit(job_desc, part_list, submit_uid)
end

function slurm_job_modify()
  return slurm.SUCCESS
end

return slurm.SUCCESS
