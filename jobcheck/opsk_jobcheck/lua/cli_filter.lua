-- cli_filter.lua of opsk: shows a person who submits a training job what to expect of it, and never stands in the way.
--
-- sbatch, salloc and srun run this as their user, before the request leaves the login node. Most submissions end at the
-- gate below. What may train goes to opsk-advice.lua, beside this file or in /etc/opsk: it reads the batch script, asks
-- the advisor on a local Unix socket and prints the advice on stderr. All of it may last cli_deadline_ms; whatever goes
-- wrong, the job is submitted as it came, and nothing is printed.
--
-- Install: beside slurm.conf on the login nodes, with CliFilterPlugins=cli_filter/lua (configless Slurm sends this file
-- along, but neither opsk-advice.lua nor the settings opsk-hooks.conf: they go to /etc/opsk there).
-- `opsk advisor --install-hooks DIRECTORY` writes all of it.
-- Beside a script of your own:  local ok, opsk = pcall(function()
--                                 return assert(loadfile("/etc/slurm/opsk_cli_filter.lua"))("library") end)
-- and in your slurm_cli_pre_submit:  if ok then opsk.pre_submit(options, offset) end
-- Runs on Lua 5.1 to 5.4.

-- The gate: what every submission pays for. It says nothing under --quiet, inside running jobs and with OPSK_ADVICE=off.

local function is_set(value)
  return value ~= nil and value ~= "" and value ~= "0" and value ~= "unset" and value ~= "invalid-context"
end

local function gpus_are_implied(here)
  local file = io.open(here .. "opsk-hooks.conf", "r") or io.open("/etc/opsk/opsk-hooks.conf", "r")
  local text = file and file:read(16384) or ""
  if file then file:close() end
  return text:find("gpus_implied[ \t]*=[ \t]*yes")
end

-- Returns the options as JSON when this may be a training job that somebody wants to hear about.
local function worth_a_look(options, here)
  local command = options.type
  if command ~= "sbatch" and command ~= "salloc" and command ~= "srun" then return nil end
  if os.getenv("SLURM_JOB_ID") or os.getenv("OPSK_ADVICE") == "off" or is_set(options.quiet) then return nil end
  local options_json = slurm.json_cli_options(options)
  if type(options_json) ~= "string" then return nil end
  if options_json:find("gpu", 1, true) or options_json:find('"exclusive"', 1, true) or gpus_are_implied(here) then
    return options_json
  end
end

-- Later components of a heterogeneous job have no script of their own: one answer is enough.
local function pre_submit(options, offset)
  if (tonumber(offset) or 0) > 0 then return end
  -- A place that is not absolute may be anybody's.
  local here = debug.getinfo(1, "S").source:match("^@(/.*/)") or "/etc/opsk/"
  local options_json = worth_a_look(options, here)
  if not options_json then return end
  -- In a file of its own: to read it takes longer than the gate, and most submissions end there.
  local advise = loadfile(here .. "opsk-advice.lua") or loadfile("/etc/opsk/opsk-advice.lua")
  if advise then advise(is_set, here)(options, options_json) end
end

local opsk = {}
function opsk.pre_submit(options, offset)
  pcall(pre_submit, options, offset)
  return slurm.SUCCESS
end

if (...) == "library" then return opsk end

function slurm_cli_setup_defaults()
  return slurm.SUCCESS
end

function slurm_cli_pre_submit(options, offset)
  return opsk.pre_submit(options, offset)
end

function slurm_cli_post_submit()
  return slurm.SUCCESS
end

return slurm.SUCCESS
