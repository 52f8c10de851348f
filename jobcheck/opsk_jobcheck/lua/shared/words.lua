-- Words that tell a training job, what of its environment counts, and where libraries are looked for.
local MAX_SCRIPT = 1048576
local MAX_SEARCHED = 262144
local TRAINING_WORDS = { "train", "torchrun", "torch.distributed", "megatron", "deepspeed", "accelerate", "nemo",
  "nanotron", "axolotl", "llamafactory", "llama_factory", "composer", "finetun", "trl ", "#opsk" }

local function opted_out(text)
  local at = text:find("#OPSK", 1, true)
  while at do
    local before = at == 1 and "\n" or text:sub(at - 1, at - 1)
    local line = text:match("^[^\n]*", at)
    if before == "\n" and line:find("^#OPSK[ \t]+off[ \t\r]*$") then return true end
    at = text:find("#OPSK", at + 5, true)
  end
  return false
end

-- A script that srun starts may be what trains. Few steps, and few bytes of each: no text may make this slow.
local function starts_a_script(text)
  local at = text:find("srun", 1, true)
  for _ = 1, 64 do
    if not at then return false end
    local step = text:sub(at, at + 1000):gsub("\\\r?\n", " "):match("^[^\n]*")
    if step:find(".sh", 1, true) then return true end
    at = text:find("srun", at + 4, true)
  end
  return false
end

local function looks_like_training(text)
  local start = text:sub(1, MAX_SEARCHED):lower()
  for _, word in ipairs(TRAINING_WORDS) do
    if start:find(word, 1, true) then return true end
  end
  return starts_a_script(start)
end

-- Only what the script mentions is sent, and nothing that is named like a secret.
local MAX_VARIABLES = 256
local MAX_MENTIONS = 4096
local function mentioned_variables(text, value_of)
  local found, seen, count, mentions = {}, {}, 0, 0
  for name in text:gmatch("%$%{?[#!]?([%a_][%w_]*)") do
    mentions = mentions + 1
    if count >= MAX_VARIABLES or mentions > MAX_MENTIONS then break end
    if not seen[name] then
      seen[name] = true
      local upper = name:upper()
      local secret = upper:find("TOKEN", 1, true) or upper:find("SECRET", 1, true) or upper:find("PASS", 1, true)
        or upper:find("KEY", 1, true) or upper:find("CREDENTIAL", 1, true) or upper:find("AUTH", 1, true)
      local value = not secret and value_of(name)
      if type(value) == "string" and #value <= 4096 then
        found[name] = value
        count = count + 1
      end
    end
  end
  return found
end

-- Does the user's terminal show ASCII alone? Where nothing is set, signs are shown.
local function ascii_only(value_of)
  for _, name in ipairs({ "LC_ALL", "LC_CTYPE", "LANG" }) do
    local value = value_of(name)
    if type(value) == "string" and value ~= "" then return not value:lower():find("utf", 1, true) end
  end
  return false
end
-- Lua looks for libraries in the current directory first, which may be anybody's: only absolute places count here.
local function library(name)
  local path, cpath, places = package.path, package.cpath, {}
  for place in cpath:gmatch("[^;]+") do
    if place:sub(1, 1) == "/" then places[#places + 1] = place end
  end
  package.path, package.cpath = "", table.concat(places, ";")
  local found, made = pcall(require, name)
  package.path, package.cpath = path, cpath
  return found and made or nil
end
