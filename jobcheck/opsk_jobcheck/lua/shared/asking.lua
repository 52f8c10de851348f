-- Settings, JSON, and a connection to the advisor that ends at its deadline.
local VERSION = 1
local EMPTY_OBJECT = {}
local MAX_QUESTION = 1572864
local SETTINGS = {
  socket = "/run/opsk/advisor.sock", submit_deadline_ms = 20, cli_deadline_ms = 300, submit_lines = "auto",
  gpus_implied = "no", breaker_failures = 3, breaker_pause_s = 5, policy = "none",
}

-- Settings lie beside this file, or in /etc/opsk: text that is read, never Lua that is run.
local function read_settings()
  local file = io.open(HERE .. "opsk-hooks.conf", "r") or io.open("/etc/opsk/opsk-hooks.conf", "r")
  if not file then return end
  local text = file:read(16384) or ""
  file:close()
  for name, value in text:gmatch("([%a_]+)[ \t]*=[ \t]*([^\r\n]-)[ \t]*[\r\n]") do
    local known = SETTINGS[name]
    if type(known) == "number" then
      local number = tonumber(value)
      if number and number > 0 and number <= 10000 then SETTINGS[name] = number end
    elseif known and value ~= "" then
      SETTINGS[name] = value
    end
  end
end
pcall(read_settings)

local ESCAPES = setmetatable({ ['"'] = '\\"', ["\\"] = "\\\\", ["\n"] = "\\n", ["\t"] = "\\t" },
  { __index = function(_, sign) return string.format("\\u%04x", sign:byte()) end })
local function json_text(text)
  return '"' .. text:gsub('[%c"\\]', ESCAPES) .. '"'
end

-- Tables whose [1] is set, or that carry no key at all, are arrays. Lua 5.3 gives Slurm's numbers as floats.
local function json(value)
  local kind = type(value)
  if kind == "string" then return json_text(value) end
  if kind == "boolean" then return tostring(value) end
  if kind == "number" then
    if value ~= value or value == math.huge or value == -math.huge then return "null" end
    return value == math.floor(value) and string.format("%.0f", value) or string.format("%.17g", value)
  end
  if kind ~= "table" then return "null" end
  local parts = {}
  if value[1] ~= nil or next(value) == nil and value ~= EMPTY_OBJECT then
    for index = 1, #value do parts[index] = json(value[index]) end
    return "[" .. table.concat(parts, ",") .. "]"
  end
  for name, entry in pairs(value) do parts[#parts + 1] = json_text(tostring(name)) .. ":" .. json(entry) end
  return "{" .. table.concat(parts, ",") .. "}"
end

-- A conversation with the advisor that ends `seconds` after `began`, or after now.
local function converse(seconds, began)
  -- The core alone makes the process ignore SIGPIPE: else an advisor that hangs up would kill sbatch.
  local core = library("socket.core")
  local unix = core and library("socket.unix")
  if not unix then return nil, "lua-socket is not installed" end
  local clock = core.gettime
  local started = began or clock()
  local function left()
    local gone = clock() - started
    if gone < 0 or gone >= seconds then error("deadline", 0) end
    return seconds - gone
  end
  local make = type(unix) == "table" and (unix.stream or unix.tcp) or unix
  local peer = make()
  if not peer then return nil, "no socket" end
  local function check(done, why)
    if not done then error(why or "closed", 0) end
    return done
  end
  local talk = { left = left }
  function talk.close() pcall(peer.close, peer) end
  function talk.connect()
    peer:settimeout(left(), "t")
    check(peer:connect(SETTINGS.socket))
  end
  function talk.say(body)
    local size = #body
    if size > MAX_QUESTION then error("question too long", 0) end
    local header = string.char(math.floor(size / 16777216), math.floor(size / 65536) % 256,
      math.floor(size / 256) % 256, size % 256)
    peer:settimeout(left(), "t")
    check(peer:send(header .. body))
  end
  function talk.receive(size)
    peer:settimeout(left(), "t")
    return check(peer:receive(size))
  end
  return talk
end
