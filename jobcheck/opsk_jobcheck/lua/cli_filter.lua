-- cli_filter.lua of opsk: shows a person who submits a training job what to expect of it, and never stands in the way.
--
-- sbatch, salloc and srun run this as their user, before the request leaves the login node. It reads the batch script,
-- asks the advisor on a local Unix socket, and prints the advice on stderr. When the advice depends on files that the
-- script names (a model's config.json), the advisor names them and they are read here, with the user's own rights. All
-- of it may last cli_deadline_ms; whatever goes wrong, the job is submitted as it came, and nothing is printed.
-- Silent under --quiet, inside running jobs (SLURM_JOB_ID is set), with OPSK_ADVICE=off, and for scripts with #OPSK off.
-- OPSK_ADVICE=long says all of it, short two lines.
--
-- Install: beside slurm.conf on the login nodes, with CliFilterPlugins=cli_filter/lua (configless Slurm sends it along).
-- Settings: opsk-hooks.conf beside this file or in /etc/opsk, lines of name = value.
-- `opsk advisor --install-hooks DIRECTORY` writes both hooks and the settings of this site.
-- Beside a script of your own:  local ok, opsk = pcall(function()
--                                 return assert(loadfile("/etc/slurm/opsk_cli_filter.lua"))("library") end)
-- and in your slurm_cli_pre_submit:  if ok then opsk.pre_submit(options, offset) end
-- Runs on Lua 5.1 to 5.4.

-- The gate: what every submission pays for. Most are let through here, in a few microseconds.

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

-- What follows is compiled only for those that pass, and of it only what is needed: parsing takes longer than asking.

local function part(text, ...)
  return assert((loadstring or load)(text, "=cli_filter.lua"))(...)
end

local TYPED = [==[
--@ cli_filter/typed.lua
]==]

local READING = [==[
--@ cli_filter/reading.lua
]==]

local FILES = [==[
--@ cli_filter/files.lua
]==]

local HEARING = [==[
--@ cli_filter/hearing.lua
]==]

local TALKING = [==[
--@ cli_filter/talking.lua
]==]

-- Later components of a heterogeneous job have no script of their own: one answer is enough.
local function pre_submit(options, offset)
  if (tonumber(offset) or 0) > 0 then return end
  local here = debug.getinfo(1, "S").source:match("^@(.*/)") or "./"
  local options_json = worth_a_look(options, here)
  if not options_json then return end
  local read, quoted, absolute, mentioned_variables, library = part(READING, is_set, part, TYPED)
  local found = read(options, options.type)
  if not found then return end
  local base = is_set(options.chdir) and options.chdir or nil
  local talk = part(TALKING, here, quoted, absolute, mentioned_variables, library, part, FILES, HEARING)
  talk(found, options.type, options_json, base)
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
