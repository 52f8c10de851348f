-- opsk-advice.lua of opsk: what cli_filter.lua does for a submission that may train. Reads the script, asks, and prints.
--
-- When the advice depends on files that the script names (a model's config.json), the advisor names them and they are
-- read here, with the user's own rights. Silent for scripts with #OPSK off; OPSK_ADVICE=long says all of it, short two
-- lines. Settings: opsk-hooks.conf beside cli_filter.lua or in /etc/opsk, lines of name = value.
--
-- Lies beside cli_filter.lua or in /etc/opsk. Runs on Lua 5.1 to 5.4.
local is_set, HERE = ...

-- What few submissions need is compiled where it is needed: that takes longer than to skip it.
local function part(text, ...)
  return assert((loadstring or load)(text, "=opsk-advice.lua"))(...)
end

local TYPED = [==[
--@ cli_filter/typed.lua
]==]

local FILES = [==[
--@ cli_filter/files.lua
]==]

--@ cli_filter/reading.lua

--@ shared/asking.lua

--@ cli_filter/hearing.lua

--@ cli_filter/talking.lua

return function(options, options_json)
  local found = read_submission(options, options.type)
  if not found then return end
  local base = is_set(options.chdir) and options.chdir or nil
  talk_about(found, options.type, options_json, base)
end
